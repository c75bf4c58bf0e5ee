//! A compressed file as a file of its own.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

use super::decompress::{Compression, decoder};
use super::input::fill;

/// What is read and written at a time. Zeros of this length become holes.
const CHUNK_BYTES: usize = 64 << 10;
/// No file of ext4 is longer.
const LIMIT_BYTES: u64 = 16 << 40;

/// Decompresses a file into a temporary file without a name, in `$TMPDIR`, whose blocks of zeros are holes.
/// `None` if it is not compressed: by gzip, xz, zstd or bzip2, as its first bytes say. `show` is called with
/// the number of bytes of `file` that were read so far. The temporary file is gone when it is closed.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let plain = tempfile::tempfile()?;
/// let unpacked = throughline_archive::unpack(&plain, &|_| ())?;
/// assert!(unpacked.is_none());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for a damaged or truncated stream; of the system, such as a full disk.
pub fn unpack(file: &File, show: &(dyn Fn(u64) + Sync)) -> io::Result<Option<File>> {
    let compression = compression_of(file)?;
    if compression == Compression::None {
        return Ok(None);
    }
    let input = Counted { file, at: 0, show };
    let target = tempfile::tempfile()?;
    let at = copy(compression, input, &target)?;
    target.set_len(at)?;
    Ok(Some(target))
}

/// Whether [`unpack`] takes a file for a compressed one.
pub fn is_compressed(file: &File) -> bool {
    compression_of(file).is_ok_and(|compression| compression != Compression::None)
}

fn compression_of(file: &File) -> io::Result<Compression> {
    let mut head = [0; 8];
    let len = file.read_at(&mut head, 0)?;
    Ok(Compression::of(head.get(..len).unwrap_or_default()))
}

fn copy(compression: Compression, input: impl Read + Send, target: &File) -> io::Result<u64> {
    let mut decoded = decoder(
        compression,
        BufReader::with_capacity(CHUNK_BYTES, input),
        LIMIT_BYTES,
    )?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        let len = fill(&mut *decoded, &mut chunk)?;
        let Some(bytes) = chunk.get(..len).filter(|bytes| !bytes.is_empty()) else {
            return Ok(at);
        };
        if bytes.iter().any(|byte| *byte != 0) {
            target.write_all_at(bytes, at)?;
        }
        at += len as u64;
    }
}

/// Reads a file from its beginning, whatever its position is, and shows how far.
struct Counted<'a> {
    file: &'a File,
    at: u64,
    show: &'a (dyn Fn(u64) + Sync),
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        (self.show)(self.at);
        Ok(read)
    }
}
