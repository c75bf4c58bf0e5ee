//! [`Vmdk`]: a disk of VMware in one file (`monolithicSparse`, `streamOptimized`), read by the crate
//! `vmdk-core`.
//!
//! Its reader takes any `Read + Seek`, and opens no other file in this use. What it does not bound is bounded
//! here: it keeps every table that it has read, so it is made anew when there are [`MAX_TABLES`]; and it
//! decompresses a whole grain for each read, so the last one is kept.
//!
//! A disk in several files, or that holds the changes of another one, is refused: a header names these files,
//! and nobody has allowed them.

use std::io::{self, Read, Seek, SeekFrom};

use throughline_locks::{Mutex, Rank};
use vmdk::{VmdkError, VmdkReader};

use crate::cursor::{Cursor, Failure, Source};
use crate::format::VMDK;
use crate::source::{ReadAt, read};
use crate::virtual_disk::unsupported;

/// The most tables in memory, of up to 2 KiB each.
const MAX_TABLES: usize = 1 << 13;
/// The longest grain: VMware's limit.
const MAX_GRAIN_BYTES: u64 = 1 << 20;
/// The parent of a disk that has none.
const NO_PARENT: u32 = u32::MAX;

/// See the head of this file.
pub(crate) struct Vmdk {
    source: Source,
    failure: Failure,
    len_bytes: u64,
    grain_bytes: u64,
    is_compressed: bool,
    state: Mutex<State>,
}

struct State {
    reader: VmdkReader<Cursor>,
    /// The place of a decompressed grain on the disk, and its bytes.
    last: Option<(u64, Vec<u8>)>,
}

impl Vmdk {
    /// # Errors
    /// [`io::ErrorKind::Unsupported`], [`io::ErrorKind::InvalidData`]; of the device.
    pub(crate) fn open(source: Source) -> io::Result<Vmdk> {
        if read(&source, 0)? != Some(VMDK) {
            return Err(several_files());
        }
        let failure = Failure::default();
        let reader = reader(&source, &failure)?;
        let info = reader.info();
        match info.disk_type.as_str() {
            "monolithicSparse" | "streamOptimized" => {}
            _ => return Err(several_files()),
        }
        if info.parent_cid != NO_PARENT {
            return Err(unsupported(
                "a vmdk image that holds the changes of another one: 'qemu-img convert -O qcow2' makes one of both",
            ));
        }
        if info.grain_size_bytes > MAX_GRAIN_BYTES {
            return Err(unsupported("a vmdk image with such long grains"));
        }
        Ok(Vmdk {
            source,
            failure,
            len_bytes: info.virtual_disk_size,
            grain_bytes: info.grain_size_bytes.max(1),
            is_compressed: info.compressed,
            state: Mutex::ranked(Rank::ImageReader, State { reader, last: None }),
        })
    }

    fn read(&self, state: &mut State, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let reader = &mut state.reader;
        let found = reader.seek(SeekFrom::Start(at));
        let read = found.and_then(|_| reader.read_exact(buffer));
        read.map_err(|error| self.failure.explain_read("vmdk", &error))
    }

    /// The bytes from `at` to the end of its grain, or of the buffer. Returns how many.
    fn read_in_grain(&self, state: &mut State, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let within = at.checked_rem(self.grain_bytes).unwrap_or(0);
        let start = at.saturating_sub(within);
        if state.last.as_ref().is_none_or(|(place, _)| *place != start) {
            state.last = None;
            let rest = self.len_bytes.saturating_sub(start);
            let mut grain = vec![0; size(self.grain_bytes.min(rest))];
            self.read(state, &mut grain, start)?;
            state.last = Some((start, grain));
        }
        let grain = state.last.as_ref().map_or(&[][..], |(_, grain)| grain);
        let bytes = grain.get(size(within)..).unwrap_or_default();
        let len = bytes.len().min(buffer.len());
        let (there, bytes) = (buffer.split_at_mut(len).0, bytes.split_at(len).0);
        there.copy_from_slice(bytes);
        Ok(len)
    }
}

impl ReadAt for Vmdk {
    fn read_exact_at(&self, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
        let end = at.checked_add(u64::try_from(buffer.len()).unwrap_or(u64::MAX));
        if end.is_none_or(|end| end > self.len_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut state = self.state.lock();
        if state.reader.gt_cache_size() >= MAX_TABLES {
            state.reader = reader(&self.source, &self.failure)?;
        }
        if !self.is_compressed {
            return self.read(&mut state, buffer, at);
        }
        while !buffer.is_empty() {
            let len = self.read_in_grain(&mut state, buffer, at)?;
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer = buffer.split_at_mut(len).1;
            at = at.saturating_add(u64::try_from(len).unwrap_or(0));
        }
        Ok(())
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.len_bytes)
    }
}

fn reader(source: &Source, failure: &Failure) -> io::Result<VmdkReader<Cursor>> {
    let cursor = Cursor::new(source, failure)?;
    VmdkReader::open(cursor).map_err(|error| match error {
        VmdkError::Io(error) => failure.explain_read("vmdk", &error),
        VmdkError::UnsupportedVersion(version) => {
            unsupported(format!("a vmdk image of version {version}"))
        }
        error => failure.explain("vmdk", &error),
    })
}

fn several_files() -> io::Error {
    unsupported(
        "a vmdk image whose disk is in other files, or of another kind: 'qemu-img convert -O qcow2' makes one file \
         of them",
    )
}

/// A number of bytes as a length in memory.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
