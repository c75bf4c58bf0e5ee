//! Buffered and direct access to one inode: the rules of [`throughline_fileio::coherence`], as this crate keeps them.
//!
//! *The size*: [`map::size`] is the committed one, [`size`] what everybody sees.
//!
//! - A direct read writes back first what is dirty in its range; one that ends behind the committed size, all of the file.
//! - A direct write of a file that nobody has open for buffered I/O and of which nothing is cached shares the I/O lock as
//!   ever. Any other is alone, behind [`make_way`].
//! - Truncation and `fallocate` are alone, and go behind [`make_way`], [`before_loss`] or [`before_move`]. What they take away is
//!   dropped from the cache once it is gone, not before: one that fails has changed nothing.

use std::ops::Range;

use throughline_fileio::{AddressSpace, Frozen, buffered, coherence};

use crate::cached::Bare;
use crate::cached::inode::Cached;
use crate::data::Data;
use crate::error::Result;
use crate::inode::{Inode, Inodes};
use crate::map;

/// All bytes of a file.
pub(crate) const ALL: Range<u64> = 0..u64::MAX;

/// The file's size as everybody sees it. Without a lock it may change at once.
///
/// # Errors
/// `Corrupt` for a size that cannot be.
pub(crate) fn size(fs: &Inodes, inode: &Inode) -> Result<u64> {
    let committed = map::size(fs, inode)?;
    Ok(match inode.cached.get() {
        Some(cached) => cached.space.size().max(committed),
        None => committed,
    })
}

/// The committed size changed otherwise than by write-back; the I/O lock is held exclusively.
pub(crate) fn resized(inode: &Inode, size: u64) {
    if let Some(cached) = inode.cached.get() {
        cached.space.set_size(size);
    }
}

/// Whether a direct write may go beside others: nothing is cached, and nobody is there to cache anything. The I/O lock is
/// held.
pub(crate) fn may_share(inode: &Inode) -> bool {
    inode
        .cached
        .get()
        .is_none_or(|cached| cached.space.is_empty() && cached.file().is_none())
}

/// Whether nothing of the file is in memory only; the I/O lock is held.
pub(crate) fn is_clean(inode: &Inode) -> bool {
    inode
        .cached
        .get()
        .is_none_or(|cached| cached.space.dirty_bytes() == 0)
}

/// Writes back what is dirty in the range, and waits for it.
///
/// # Errors
/// What write-back met, again at each call until it can be done.
pub(crate) fn flush(inode: &Inode, range: Range<u64>) -> Result<()> {
    // When there is no such file, nothing is dirty.
    let Some(host) = inode.cached.get().and_then(Cached::file) else {
        return Ok(());
    };
    Ok(buffered::flush(&host, range)?)
}

/// What a direct read of the range needs; the I/O lock is held, shared.
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

/// For a change of the range on the device: writes the file back as far as that matters, keeps background work out until
/// the answer is dropped, and drops what is cached of the range. The committed size is everybody's then, and no room is put by. The
/// I/O lock is held exclusively.
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
        flush(inode, ALL)?;
    } else if space.is_dirty(range.clone()) {
        flush(inode, coherence::whole_blocks(space, range.clone()))?;
    }
    Ok(Some(drop_range(fs, inode, space, range)))
}

/// For a change that takes the bytes of a range away: what is dirty in the blocks at its edges is written back, the rest of the
/// file too where `rest` says so, and background work is kept out until the answer is dropped. Nothing is dropped from the cache: when
/// the change has happened, what it took away is the caller's to [drop](drop_cached). The I/O lock is held exclusively.
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

/// As [`before_loss`], where all that is dirty is written back: for a change that moves what is behind it, or for one that commits
/// a size before which there may be such data.
///
/// # Errors
/// As [`flush`].
pub(crate) fn before_move(inode: &Inode) -> Result<Option<Frozen<'_>>> {
    flush(inode, ALL)?;
    Ok(freeze(inode))
}

/// Drops what is cached of the blocks that the range touches, dirty ones unwritten: the device has something else there now. The file
/// is frozen, and the I/O lock held exclusively.
pub(crate) fn drop_cached(fs: &Data, inode: &Inode, range: Range<u64>) {
    let Some(cached) = inode.cached.get() else {
        return;
    };
    let space = &cached.space;
    if !space.is_empty() && !range.is_empty() {
        let host = Bare { fs, inode, space };
        space.discard(&host, coherence::whole_blocks(space, range));
    }
    if space.dirty_bytes() == 0 {
        inode.delayed.all_clean(fs, inode);
    }
}

/// Drops what is cached and clean, and leaves the rest: a change may have come half-way.
pub(crate) fn drop_clean(inode: &Inode) {
    if let Some(cached) = inode.cached.get() {
        cached.space.drop_clean(ALL);
    }
}

/// Writes back what is dirty in the blocks at the edges of a range, or in all blocks that are not whole in it.
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
            flush(inode, part)?;
        }
    }
    Ok(())
}

/// Keeps background work out until the answer is dropped; the I/O lock is held exclusively.
pub(crate) fn freeze(inode: &Inode) -> Option<Frozen<'_>> {
    inode.cached.get().map(|cached| cached.space.freeze())
}

/// Freezes, and drops the whole file.
pub(crate) fn discard_all<'i>(fs: &Data, inode: &'i Inode) -> Option<Frozen<'i>> {
    let cached = inode.cached.get()?;
    Some(drop_range(fs, inode, &cached.space, ALL))
}

fn drop_range<'i>(
    fs: &Data,
    inode: &Inode,
    space: &'i AddressSpace,
    range: Range<u64>,
) -> Frozen<'i> {
    let frozen = space.freeze();
    drop_cached(fs, inode, range);
    frozen
}
