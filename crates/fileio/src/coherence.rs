//! Coherence of buffered and direct access to one file. **The rules, in one place.**
//!
//! The file's lock is the caller's: I/O holds it shared, what takes blocks away or moves them holds it exclusively.
//! *Frozen* is a file that background work (write-back, reading ahead) neither works on nor enters
//! ([`AddressSpace::freeze`]).
//!
//! 1. *Direct read*, lock shared. Sees every buffered write that returned before it began: what is dirty in its range is
//!    written back first ([`before_direct_read`]); if it ends behind the committed size, all of the file is, since what
//!    lies behind that size may be holes that only a larger size makes readable.
//! 2. *Direct write*. To a file of which nothing is cached, and that nobody has open for buffered I/O: as without a cache.
//!    Otherwise alone in the file (lock exclusive): its range, widened to whole blocks, is written back, the file frozen,
//!    the range dropped ([`take_out`]), then written. So no block has one part in the cache and another on the device.
//! 3. *Truncation, punching, collapsing, inserting, zeroing*, lock exclusive. What the operation needs on the device is
//!    written back first, then the file is frozen and what it changes is dropped; dirty bytes that go are never written.
//! 4. *The size* is the space's, which is never smaller than the committed one. The committed one grows when data is there;
//!    whatever else changes it, under the exclusive lock, sets the space's too.
//! 5. *A buffered fill* runs under the file's lock (shared) or as background work, so it never meets 2 or 3 half-way.
//! 6. *Whoever flushes* may hold the file's lock: write-back takes none of a file. Whoever freezes holds it exclusively and
//!    has flushed before: a frozen file is not written back.
//!
//! Two accesses at the same time, one direct and one buffered, have no order, as two writes at the same time have none:
//! each byte is from one of them.

use std::ops::Range;
use std::sync::Arc;

use crate::buffered;
use crate::cache::{AddressSpace, Backing, Frozen};
use crate::error::Result;

/// Rule 1: writes back what a direct read of the range must see. The file's lock is held, shared.
///
/// # Errors
/// What write-back of the file met, again at each call until it can be done.
pub fn before_direct_read(host: &Arc<dyn Backing>, range: Range<u64>) -> Result<()> {
    let space = host.space();
    let committed = host.size_bytes();
    if range.end > committed && space.size() > committed {
        return buffered::flush(host, 0..u64::MAX);
    }
    if space.dirty_bytes() > 0 && space.is_dirty(range.clone()) {
        buffered::flush(host, range)?;
    }
    Ok(())
}

/// Rule 2, and the beginning of 3: writes the range back in whole blocks, all of the file where its size is not
/// committed; freezes it until the answer is dropped; and drops the range from the cache. The file's lock is held
/// exclusively.
///
/// # Errors
/// As [`before_direct_read`]; nothing is dropped then.
pub fn before_direct_write(host: &Arc<dyn Backing>, range: Range<u64>) -> Result<Frozen<'_>> {
    let space = host.space();
    if space.size() != host.size_bytes() {
        buffered::flush(host, 0..u64::MAX)?;
    } else if space.is_dirty(range.clone()) {
        buffered::flush(host, whole_blocks(space, range.clone()))?;
    }
    Ok(take_out(space, &**host, range))
}

/// Freezes the file until the answer is dropped, and drops the whole blocks around the range from the cache: dirty ones
/// too, unwritten. The file's lock is held exclusively.
pub fn take_out<'s>(space: &'s AddressSpace, host: &dyn Backing, range: Range<u64>) -> Frozen<'s> {
    let frozen = space.freeze();
    if !space.is_empty() {
        space.discard(host, whole_blocks(space, range));
    }
    frozen
}

/// The cache's blocks that the range touches.
pub fn whole_blocks(space: &AddressSpace, range: Range<u64>) -> Range<u64> {
    let block = u64::from(space.block_bytes());
    let end = range.end.checked_next_multiple_of(block);
    range.start / block * block..end.unwrap_or(u64::MAX)
}

/// The cache's blocks that lie in the range whole; empty where there are none.
pub fn inner_blocks(space: &AddressSpace, range: Range<u64>) -> Range<u64> {
    let block = u64::from(space.block_bytes());
    let end = match range.end {
        u64::MAX => u64::MAX,
        end => end / block * block,
    };
    let start = range.start.checked_next_multiple_of(block);
    let start = start.unwrap_or(u64::MAX);
    start..end.max(start)
}
