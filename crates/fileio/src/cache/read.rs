//! Buffered reading.

use std::io::IoSliceMut;

use crate::cache::{AddressSpace, Backing};
use crate::error::Result;
use crate::readahead::ReadStream;

impl AddressSpace {
    /// Fills `buf` from file byte `offset` on if all of it (up to the file's size) is cached. Takes no lock of the
    /// file, asks no mapping and never waits for the device. How many bytes there were; `None` where something is missing.
    pub fn read_cached(&self, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let _ = (offset, buf);
        todo!()
    }
}

/// Reads through the cache: fills what is missing, reading ahead as `stream` says. The file's lock is held shared. How many
/// bytes there were, fewer than asked only at the end of the file.
///
/// # Errors
/// Those of the mapping and the device, when nothing was read before it.
pub(crate) fn read(
    host: &std::sync::Arc<dyn Backing>,
    offset: u64,
    bufs: &mut [IoSliceMut<'_>],
    stream: &ReadStream,
) -> Result<usize> {
    let _ = (host, offset, bufs, stream);
    todo!()
}
