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
    let _ = (host, offset, bufs, stream);
    todo!()
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
    let _ = (host, offset, bufs, wait);
    todo!()
}

/// Makes the calling thread pay for what it dirtied: a pause, where dirty memory is past what needs none. To be called
/// after the file's locks are released.
pub fn pause(host: &dyn Backing, accepted: Accepted) {
    host.space()
        .cache()
        .throttle()
        .balance(accepted.dirtied_bytes);
}

/// Writes back what is dirty in the range, and waits for it and for what is under write-back there: the data and its mapping are then with the
/// device and the journal, not yet flushed.
///
/// # Errors
/// What write-back of the file met, again at each call until it can be done.
pub fn flush(host: &Arc<dyn Backing>, range: Range<u64>) -> Result<()> {
    let _ = (host, range);
    todo!()
}

/// Starts writing back what is dirty in the range, and does not wait.
pub fn start_flush(host: &Arc<dyn Backing>, range: Range<u64>) {
    let _ = (host, range);
    todo!()
}

#[allow(unused_imports)]
use cache as _;
