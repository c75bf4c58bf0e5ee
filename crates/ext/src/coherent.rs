//! Buffered and direct access to one inode: the rules of [`throughline_fileio::coherence`], as this crate
//! applies them.
//!
//! *The size*: [`map::size`] is the committed size, [`size`] the one that callers see.
//!
//! - A direct read first writes back the dirty data in its range; if it ends past the committed size, the
//!   whole file.
//! - A direct write shares the I/O lock if the file is not open for buffered I/O and nothing of it is cached.
//!   Otherwise it holds the lock exclusively, after [`make_way`].
//! - Truncation and `fallocate` hold the lock exclusively, after [`make_way`], [`before_loss`] or
//!   [`before_move`]. Cached data in the range is dropped only after the blocks were removed from the
//!   mapping, so a call that fails has changed nothing.

use std::ops::Range;
use std::sync::Arc;

use throughline_fileio::{AddressSpace, Backing, Frozen, buffered, coherence};

use crate::cached::Bare;
use crate::cached::inode::Cached;
use crate::data::Data;
use crate::error::{Error, Reason, Result};
use crate::inode::{Inode, Inodes};
use crate::map;

/// All bytes of a file.
pub(crate) const ALL: Range<u64> = 0..u64::MAX;

/// The file's size as callers see it. Without a lock it may change at any time.
///
/// # Errors
/// `Corrupt` for an invalid size.
pub(crate) fn size(fs: &Inodes, inode: &Inode) -> Result<u64> {
    let committed = map::size(fs, inode)?;
    Ok(match inode.cached.get() {
        Some(cached) => cached.space.size().max(committed),
        None => committed,
    })
}

/// Updates the size in the cache after the committed size changed other than by write-back. The I/O lock is
/// held exclusively.
pub(crate) fn resized(inode: &Inode, size: u64) {
    if let Some(cached) = inode.cached.get() {
        cached.space.set_size(size);
    }
}

/// Whether a direct write may run concurrently with others: nothing is cached, and there is no `CachedFile`
/// to cache anything. The I/O lock is held.
pub(crate) fn may_share(inode: &Inode) -> bool {
    inode
        .cached
        .get()
        .is_none_or(|cached| cached.space.is_empty() && cached.file().is_none())
}

/// Whether none of the file's data is only in memory. The I/O lock is held.
pub(crate) fn is_clean(inode: &Inode) -> bool {
    inode
        .cached
        .get()
        .is_none_or(|cached| cached.space.dirty_bytes() == 0)
}

/// Writes back the dirty data in the range, and waits for it.
///
/// # Errors
/// Errors of write-back, repeated at each call until it succeeds.
pub(crate) fn flush(inode: &Inode, range: Range<u64>) -> Result<()> {
    // Without a `CachedFile`, nothing is dirty.
    let Some(host) = inode.cached.get().and_then(Cached::file) else {
        return Ok(());
    };
    Ok(buffered::flush(&host, range)?)
}

/// As [`flush`], without the bytes for which there is no space ([`buffered::write_back`]): they stay
/// dirty.
///
/// # Errors
/// Errors of write-back.
pub(crate) fn flush_promised(inode: &Inode, range: Range<u64>) -> Result<()> {
    let Some(host) = inode.cached.get().and_then(Cached::file) else {
        return Ok(());
    };
    Ok(buffered::flush_promised(&host, range)?)
}

/// The first bytes in the range that are in memory only because there is no space for them.
pub(crate) fn first_kept(inode: &Inode, range: &Range<u64>) -> Option<Range<u64>> {
    inode.cached.get()?.space.refused.first_kept(range)
}

/// For a read that goes past the cache and found no space to write back what it must see: the file, if that
/// is because bytes are kept without space. They are read from the cache.
pub(crate) fn short_of_space(inode: &Inode, error: &Error) -> Option<Arc<dyn Backing>> {
    let is_space = matches!(error, Error::Caller(Reason::NoSpace | Reason::Quota));
    let cached = inode
        .cached
        .get()
        .filter(|cached| is_space && cached.space.refused.is_any());
    cached.and_then(Cached::file)
}

/// Bytes of the file were written or removed: a sync no longer fails because they were lost.
pub(crate) fn rewritten(inode: &Inode, range: &Range<u64>) {
    if let Some(cached) = inode.cached.get() {
        cached.space.refused.rewritten(range);
    }
}

/// Prepares a direct read of the range. The I/O lock is held, shared.
///
/// # Errors
/// As [`flush`].
pub(crate) fn before_read(fs: &Inodes, inode: &Inode, range: Range<u64>) -> Result<()> {
    let Some(cached) = inode.cached.get() else {
        return Ok(());
    };
    let space = &cached.space;
    if space.dirty_bytes() == 0 && space.size() <= map::size(fs, inode)? {
        return Ok(());
    }
    let Some(host) = cached.file() else {
        return Ok(());
    };
    Ok(coherence::before_direct_read(&host, range)?)
}

/// Prepares a change of the range on the device: writes back the dirty data in it (all of the file's if the
/// size or the mapping depends on write-back), freezes background work until the returned guard is dropped,
/// and drops the cached data of the range. Afterwards, the committed size is the size that callers see, and
/// no space is reserved for the file. The I/O lock is held exclusively.
///
/// # Errors
/// As [`flush`].
pub(crate) fn make_way<'i>(
    fs: &Data,
    inode: &'i Inode,
    range: Range<u64>,
) -> Result<Option<Frozen<'i>>> {
    let Some(cached) = inode.cached.get() else {
        return Ok(None);
    };
    let space = &cached.space;
    if space.size() != map::size(fs, inode)? || !inode.delayed.is_idle() {
        flush_promised(inode, ALL)?;
    }
    if space.size() != map::size(fs, inode)? {
        flush(inode, ALL)?;
    } else if space.is_dirty(range.clone()) {
        flush(inode, coherence::whole_blocks(space, range.clone()))?;
    }
    let frozen = space.freeze();
    drop_blocks(fs, inode, space, range);
    Ok(Some(frozen))
}

/// Prepares a change that removes the bytes of a range: writes back the dirty data in the blocks at its edges
/// (with `rest`, in the rest of the file too), and freezes background work until the returned guard is
/// dropped. Drops nothing from the cache: after the change, the caller [drops](drop_cached) what it removed.
/// The I/O lock is held exclusively.
///
/// # Errors
/// As [`flush`].
pub(crate) fn before_loss(
    inode: &Inode,
    range: Range<u64>,
    rest: bool,
) -> Result<Option<Frozen<'_>>> {
    let Some(cached) = inode.cached.get() else {
        return Ok(None);
    };
    flush_around(inode, &cached.space, range, rest)?;
    Ok(freeze(inode))
}

/// As [`before_loss`], but writes back all dirty data below a size that is about to be committed. What has no
/// space stays dirty: after a crash it reads as zeros, as any hole does.
///
/// # Errors
/// As [`flush`].
pub(crate) fn before_growth(inode: &Inode) -> Result<Option<Frozen<'_>>> {
    flush_promised(inode, ALL)?;
    Ok(freeze(inode))
}

/// As [`before_loss`], but writes back all dirty data: for a change that moves the data after it.
///
/// # Errors
/// As [`flush`].
pub(crate) fn before_move(inode: &Inode) -> Result<Option<Frozen<'_>>> {
    flush(inode, ALL)?;
    Ok(freeze(inode))
}

/// Drops the cached data of all blocks that the range touches, including dirty data: their contents on the
/// device have been replaced. The file is frozen, and the I/O lock held exclusively.
pub(crate) fn drop_cached(fs: &Data, inode: &Inode, range: Range<u64>) {
    if let Some(cached) = inode.cached.get() {
        cached.space.refused.rewritten(&range);
        drop_blocks(fs, inode, &cached.space, range);
    }
}

fn drop_blocks(fs: &Data, inode: &Inode, space: &AddressSpace, range: Range<u64>) {
    if !space.is_empty() && !range.is_empty() {
        let host = Bare { fs, inode, space };
        let blocks = without_kept_edges(space, range);
        space.discard(&host, blocks.clone());
        let log = fs.geo.block_log;
        inode
            .delayed
            .dropped(fs, (blocks.start.div_ceil(1 << log), blocks.end >> log));
    }
    if space.dirty_bytes() == 0 {
        inode.delayed.all_clean(fs, inode);
    }
}

/// The range, extended to whole blocks where the block at its edge is on the device. An edge that is kept
/// without space is only in memory: its bytes outside the range stay there.
fn without_kept_edges(space: &AddressSpace, range: Range<u64>) -> Range<u64> {
    let blocks = coherence::whole_blocks(space, range.clone());
    let block = u64::from(space.block_bytes());
    let is_kept = |at: u64| {
        space
            .refused
            .first_kept(&(at..at.saturating_add(block)))
            .is_some()
    };
    let start = match is_kept(blocks.start) {
        true => range.start,
        false => blocks.start,
    };
    let end = match range.end < blocks.end && is_kept(blocks.end - block) {
        true => range.end,
        false => blocks.end,
    };
    start..end
}

/// Drops the clean cached data and keeps the rest, after a change that may have stopped half-way.
pub(crate) fn drop_clean(inode: &Inode) {
    if let Some(cached) = inode.cached.get() {
        cached.space.drop_clean(ALL);
    }
}

/// Writes back the dirty data in the blocks at the edges of a range; with `rest`, in all blocks not fully
/// inside it.
fn flush_around(inode: &Inode, space: &AddressSpace, range: Range<u64>, rest: bool) -> Result<()> {
    let around = coherence::whole_blocks(space, range.clone());
    let inner = coherence::inner_blocks(space, range);
    let (before, after) = if rest {
        (0..inner.start, inner.end..u64::MAX)
    } else {
        (around.start..inner.start, inner.end..around.end)
    };
    for part in [before, after] {
        if !part.is_empty() && space.is_dirty(part.clone()) {
            flush_promised(inode, part)?;
        }
    }
    Ok(())
}

/// Freezes background work until the returned guard is dropped. The I/O lock is held exclusively.
pub(crate) fn freeze(inode: &Inode) -> Option<Frozen<'_>> {
    inode.cached.get().map(|cached| cached.space.freeze())
}

/// Freezes the file and drops all its cached data.
pub(crate) fn discard_all<'i>(fs: &Data, inode: &'i Inode) -> Option<Frozen<'i>> {
    let frozen = freeze(inode)?;
    drop_cached(fs, inode, ALL);
    Some(frozen)
}
