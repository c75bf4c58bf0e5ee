//! Buffered I/O: reads and writes through the page cache. The counterpart of [`crate::direct`].
//!
//! # Locks held by the caller
//! - [`read()`], [`write()`]: the file's truncation lock, shared. A write that ends past the file's size
//!   ([`AddressSpace::size`](crate::AddressSpace::size)), or that appends, also needs the file's extend lock,
//!   which serializes such writes. The caller may hold both while the write waits for dirty memory to be
//!   written back: the flusher takes neither.
//! - [`pause`], [`flush`]: none.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use crate::cache::{self, Accepted, Backing, Stored};
use crate::error::{Error, Result};
use crate::readahead::ReadStream;

/// Reads from byte `offset` of the file. Returns the number of bytes read, less than requested only at the
/// end of the file.
///
/// # Errors
/// Those of the mapping and the device, if nothing was read before the error.
pub fn read(
    host: &Arc<dyn Backing>,
    offset: u64,
    bufs: &mut [IoSliceMut<'_>],
    stream: &ReadStream,
) -> Result<usize> {
    cache::read(host, offset, bufs, stream)
}

/// Copies `bufs` into the cache at byte `offset` of the file, and grows the file in memory if they end past
/// its size. When this returns, space on the volume is reserved: write-back will not run out of it.
///
/// # Errors
/// No space; errors of the mapping; errors of reading a block that is changed in part; the error of a failing
/// write-back, when there is no room for more dirty memory.
pub fn write(host: &Arc<dyn Backing>, offset: u64, bufs: &[IoSlice<'_>]) -> Result<Accepted> {
    cache::write(host, offset, bufs)
}

/// As [`write()`], for bytes that their program has stored already, and that the kernel writes back: all are
/// taken, whatever the space on the volume. Bytes without space are kept in memory; each flush of their range
/// fails until it finds space for them. If too many are kept, they are lost, and their range is recorded.
///
/// # Errors
/// Those of reading the mapping before anything is written. All other errors are in the result.
pub fn write_back(host: &Arc<dyn Backing>, offset: u64, bufs: &[IoSlice<'_>]) -> Result<Stored> {
    cache::write_back(host, offset, bufs)
}

/// Records that bytes which a program has stored in the range are lost: each sync of the file fails until
/// they are written again or removed ([`Refused::lost`](crate::Refused::lost)).
pub fn lose(host: &Arc<dyn Backing>, range: Range<u64>, why: Error) {
    cache::lose(host, range, why);
}

/// Throttles the calling thread for what it dirtied: pauses it when dirty memory is above the free-run
/// threshold, and holds its stream to a backlog while others write long streams too. Waits at most 200 ms
/// for each. Call it after releasing the file's locks.
pub fn pause(host: &Arc<dyn Backing>, accepted: Accepted) {
    let cache = host.space().cache();
    cache.throttle().balance(accepted.dirtied_bytes);
    cache.writeback.hold(host, &accepted);
}

/// Writes back the dirty blocks in the range, and waits for them and for what is already under write-back
/// there. On return the data has been written to the device and its mapping is in the journal; neither is
/// flushed. Blocks dirtied during the call are not waited for. If nothing in the range is dirty, only that
/// check is done.
///
/// It waits for a frozen file to thaw, so the thread that holds the freeze must flush first.
///
/// # Errors
/// The error that write-back met during this call: it is returned by each call until the write succeeds.
/// Also, that the cache was closed. `NoSpace` or `Quota` if there is no space for bytes of [`write_back`].
pub fn flush(host: &Arc<dyn Backing>, range: Range<u64>) -> Result<()> {
    host.space().cache().writeback.flush(host, range, true)
}

/// As [`flush`], without the bytes for which there was no space ([`write_back`]): they stay as they are.
///
/// # Errors
/// Those of write-back.
pub fn flush_promised(host: &Arc<dyn Backing>, range: Range<u64>) -> Result<()> {
    host.space().cache().writeback.flush(host, range, false)
}

/// Starts write-back of the dirty blocks in the range and does not wait. Failed writes are retried like any
/// other write-back.
pub fn start_flush(host: &Arc<dyn Backing>, range: Range<u64>) {
    host.space().cache().writeback.start_flush(host, range);
}
