//! Coherence of buffered and direct access to one file. **All rules are here.**
//!
//! The file's lock belongs to the caller: I/O holds it shared; operations that remove or move blocks hold it
//! exclusively. A file is *frozen* ([`AddressSpace::freeze`]) while no background work (write-back,
//! readahead) on it runs or begins.
//!
//! 1. *Direct read*, lock shared. It sees every buffered write that returned before the read began: dirty
//!    blocks in its range are written back first ([`before_direct_read`]). If it ends past the committed
//!    size, the whole file is written back, because ranges past that size may be holes that only a larger
//!    size makes readable.
//! 2. *Direct write*. If nothing of the file is cached and no handle has it open for buffered I/O: as without
//!    a cache. Otherwise with the lock held exclusively: its range, extended to whole blocks, is written
//!    back, the file is frozen, the range is dropped ([`take_out`]), then the data is written. So no block is
//!    partly in the cache and partly on the device.
//! 3. *Truncate, punch, collapse, insert, zero*, lock exclusive. Data that the operation needs on the device
//!    is written back first, then the file is frozen and the changed range is dropped. Dropped dirty bytes
//!    are never written.
//! 4. *Size*. The size is the space's; the committed size is never larger. The committed size grows when data
//!    is on the device. Any other change of it is made under the exclusive lock and also sets the space's
//!    size.
//! 5. *A buffered fill* runs under the file's lock (shared) or as background work, so it never overlaps 2 or
//!    3.
//! 6. *A flush* may be called with the file's lock held: write-back takes no lock of the file. A freeze
//!    requires the lock exclusively and a flush beforehand: a frozen file is not written back.
//!
//! A direct and a buffered access at the same time are unordered, like two concurrent writes: each byte is
//! from one of them.

use std::ops::Range;
use std::sync::Arc;

use crate::buffered;
use crate::cache::{AddressSpace, Backing, Frozen};
use crate::error::Result;

/// Rule 1: writes back what a direct read of the range must see. The caller holds the file's lock shared.
///
/// # Errors
/// The error that write-back of the file met; returned by each call until the write succeeds.
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

/// Rule 2, and the first step of rule 3: writes back the range in whole blocks (the whole file if its size is
/// not committed), freezes the file until the result is dropped, and drops the range from the cache. The
/// caller holds the file's lock exclusively.
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

/// Freezes the file until the result is dropped, and drops the blocks that the range touches from the cache;
/// dirty blocks are dropped without being written. The caller holds the file's lock exclusively.
pub fn take_out<'s>(space: &'s AddressSpace, host: &dyn Backing, range: Range<u64>) -> Frozen<'s> {
    let frozen = space.freeze();
    if !space.is_empty() {
        space.discard(host, whole_blocks(space, range));
    }
    frozen
}

/// The range extended to whole cache blocks.
pub fn whole_blocks(space: &AddressSpace, range: Range<u64>) -> Range<u64> {
    let block = u64::from(space.block_bytes());
    let end = range.end.checked_next_multiple_of(block);
    range.start / block * block..end.unwrap_or(u64::MAX)
}

/// The cache blocks that lie entirely in the range; empty if there are none.
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
