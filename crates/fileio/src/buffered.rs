//! Buffered I/O: through the page cache. The counterpart of [`crate::direct`].
//!
//! # The caller's lock
//! - [`read()`], [`write()`]: the file's lock against truncation, shared. A write that ends behind the file's size
//!   ([`AddressSpace::size`](crate::AddressSpace::size)), or that appends, is alone among those that do: the caller holds the file's extend lock
//!   too. Both may be held while the write waits for dirty memory to be written: the flusher takes neither.
//! - [`pause`], [`flush`]: none.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use crate::cache::{self, Accepted, Backing};
use crate::error::Result;
use crate::readahead::ReadStream;
use crate::throttle::Wait;

/// Reads from file byte `offset` on. How many bytes there were, fewer than asked only at the end of the file.
///
/// # Errors
/// Those of the mapping and the device, when nothing was read before.
pub fn read(
    host: &Arc<dyn Backing>,
    offset: u64,
    bufs: &mut [IoSliceMut<'_>],
    stream: &ReadStream,
) -> Result<usize> {
    cache::read(host, offset, bufs, stream)
}

/// Puts `bufs` into the cache from file byte `offset` on, and lengthens the file in memory where they end behind its
/// size. Room on the volume is promised when this returns: no write-back will lack it.
///
/// # Errors
/// No space; those of the mapping; those of reading a block that is changed in part; that of a write-back that fails, where
/// there is no room for more dirty memory; [`crate::Reason::WouldBlock`] where it would have to wait and may not.
pub fn write(
    host: &Arc<dyn Backing>,
    offset: u64,
    bufs: &[IoSlice<'_>],
    wait: Wait,
) -> Result<Accepted> {
    cache::write(host, offset, bufs, wait)
}

/// Makes the calling thread pay for what it dirtied: a pause, where dirty memory is past what needs none. To be called
/// after the file's locks are released.
pub fn pause(host: &dyn Backing, accepted: Accepted) {
    host.space()
        .cache()
        .throttle()
        .balance(accepted.dirtied_bytes);
}

/// Writes back what is dirty in the range, and waits for it and for what is under write-back there: the data and its
/// mapping are then with the device and the journal, not yet flushed. What becomes dirty meanwhile is not waited for. A file of
/// which nothing in the range is dirty costs no more than to see that.
///
/// It waits for a frozen file to thaw, so whoever froze it flushes first.
///
/// # Errors
/// What writing it met just now, so it comes again at each call until it can be done; that the cache was closed.
pub fn flush(host: &Arc<dyn Backing>, range: Range<u64>) -> Result<()> {
    host.space().cache().writeback.flush(host, range)
}

/// Starts writing back what is dirty in the range, and does not wait. What fails is tried again like any write-back.
pub fn start_flush(host: &Arc<dyn Backing>, range: Range<u64>) {
    host.space().cache().writeback.start_flush(host, range);
}
