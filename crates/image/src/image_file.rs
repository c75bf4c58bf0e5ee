//! [`ImageFile`]: the file of an image. What is long goes past the system's cache, where the library has a
//! cache of its own; tables and other small things go through it.
//!
//! Linux keeps both ways coherent: a direct read first writes back what it covers, and a direct write drops
//! it. Neither changes when a write is durable: after [`Store::sync`].

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags};

use crate::source::ReadAt;
use crate::store::Store;

/// What is shorter gains nothing by going past the cache.
const LEAST_BYTES: usize = 64 << 10;
/// Of memory, offset and length. No disk of today needs more.
const ALIGN_BYTES: usize = 4096;

/// See the head of this file.
pub(crate) struct ImageFile {
    file: File,
    /// The same file, past the cache; not on every file system.
    direct: Option<File>,
}

impl ImageFile {
    pub(crate) fn new(file: File, write: bool) -> ImageFile {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NONBLOCK;
        // Not by its path, which may have become that of another file.
        let this = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = rustix::fs::open(this, flags, Mode::empty());
        ImageFile {
            file,
            direct: direct.ok().map(File::from),
        }
    }

    /// The file past the cache, if that is of use for these bytes.
    fn direct(&self, bytes: &[u8], at: u64) -> Option<&File> {
        let address = bytes.as_ptr().addr();
        let is_aligned = (address | bytes.len()).is_multiple_of(ALIGN_BYTES)
            && at.is_multiple_of(ALIGN_BYTES as u64);
        self.direct
            .as_ref()
            .filter(|_| is_aligned && bytes.len() >= LEAST_BYTES)
    }
}

/// What is left of a direct transfer is carried out, and fails, as any other.
fn rest(done: io::Result<usize>, at: u64) -> (usize, u64) {
    let done = done.unwrap_or(0);
    (done, at.saturating_add(done as u64))
}

impl ReadAt for ImageFile {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let Some(direct) = self.direct(buffer, at) else {
            return ReadAt::read_exact_at(&self.file, buffer, at);
        };
        let (done, at) = rest(direct.read_at(buffer, at), at);
        match buffer.get_mut(done..).unwrap_or_default() {
            [] => Ok(()),
            left => ReadAt::read_exact_at(&self.file, left, at),
        }
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.file.len_bytes()
    }
}

impl Store for ImageFile {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let Some(direct) = self.direct(bytes, at) else {
            return Store::write_all_at(&self.file, bytes, at);
        };
        let (done, at) = rest(direct.write_at(bytes, at), at);
        match bytes.get(done..).unwrap_or_default() {
            [] => Ok(()),
            left => Store::write_all_at(&self.file, left, at),
        }
    }

    fn sync(&self) -> io::Result<()> {
        Store::sync(&self.file)
    }

    fn free(&self, at: u64, len_bytes: u64) {
        self.file.free(at, len_bytes);
    }

    fn begin_writing_back(&self, at: u64, len_bytes: u64) {
        self.file.begin_writing_back(at, len_bytes);
    }
}

#[cfg(test)]
mod tests {
    use throughline_device::AlignedBuf;

    use super::*;

    /// Both ways see what the other wrote, also where the file ends within a transfer.
    #[test]
    fn both_ways_are_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
        };
        let file = ImageFile::new(open().unwrap(), true);
        let mut long = AlignedBuf::zeroed(256 << 10, ALIGN_BYTES);
        long.fill(7);
        let is_direct = file.direct(&long, 0).is_some();
        assert!(file.direct(&long, 512).is_none() && file.direct(&long[1..], 0).is_none());
        file.write_all_at(&long, 8192).unwrap();
        file.write_all_at(b"short", 10_000).unwrap();
        let mut read = AlignedBuf::zeroed(256 << 10, ALIGN_BYTES);
        file.read_exact_at(&mut read, 8192).unwrap();
        long[10_000 - 8192..][..5].copy_from_slice(b"short");
        assert!(read[..] == long[..], "direct: {is_direct}");
        // A direct write over what the cache has.
        long.fill(9);
        file.write_all_at(&long, 8192).unwrap();
        let mut few = [0; 5];
        file.read_exact_at(&mut few, 10_000).unwrap();
        assert_eq!(few, [9; 5]);
        // The end within a block.
        file.file.set_len(8192 + 100_001).unwrap();
        let error = file.read_exact_at(&mut read, 8192).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(read[..100_001].iter().all(|byte| *byte == 9));
        drop(file);
        // What cannot be written says so, both ways.
        let file = ImageFile::new(File::open(&path).unwrap(), false);
        assert!(file.write_all_at(&long, 0).is_err() && file.write_all_at(b"x", 0).is_err());
    }
}
