//! Extends and truncates files, and frees all blocks of an inode.
//!
//! Blocks are freed from the end of the file to its beginning, a bounded number per transaction. The first
//! transaction sets the size; if more are needed it makes the inode an orphan, and the last one removes the
//! orphan record ([`crate::orphan`]). So after a crash the file has its old or its new size, and the
//! remaining blocks are freed when the volume is opened next.
//!
//! [`crate::edge`] zeroes the rest of the last block past the new end: the block must not be overwritten in
//! place while the committed size may still be the old one. A truncation that fails before its first
//! transaction ends has changed nothing.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::slice;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use throughline_extfmt::extent::Extent;
use throughline_extfmt::inode::FileType;
use throughline_extfmt::{FileBlock, FsBlock};

use crate::coherent;
use crate::data::Data;
use crate::edge::Edges;
use crate::emptied;
use crate::error::{Reason, Result};
use crate::handle::Handle;
use crate::inline;
use crate::inode::{INODE_CREDITS, Inode, Inodes};
use crate::map::{self, Format, Kind};
use crate::orphan::{self, ORPHAN_CREDITS};
use crate::regular;

impl Data {
    /// Sets the length of a regular file. Blocks past the new end are freed, including preallocated ones; an
    /// extension reads as zeros.
    ///
    /// # Errors
    /// `TooLarge`, `ReadOnly`, `Permission` for an immutable or append-only file; `IsDir`, `Invalid` if it is
    /// not a regular file; `Corrupt`; device errors.
    pub fn truncate(&self, inode: &Inode, size: u64) -> Result<()> {
        self.check_may_write(inode)?;
        self.check_overwrite(inode)?;
        if size > map::max_size(self, inode) {
            return Err(Reason::TooLarge.into());
        }
        resize(self, inode, size)?;
        self.data_changed(inode)
    }
}

fn resize(fs: &Data, inode: &Inode, size: u64) -> Result<()> {
    let _io = inode.io_exclusive();
    if regular::is_inline(inode) {
        if inline::resize(fs, inode, size)? {
            coherent::resized(inode, size);
            return Ok(());
        }
        inline::spill(fs, inode)?;
    }
    let seen = coherent::size(fs, inode)?;
    if size > 0 && size <= seen {
        emptied::carry_out_truncation(fs, inode)?;
    }
    if size > seen {
        lengthen(fs, inode, size)
    } else {
        shorten(fs, inode, size)
    }
}

fn lengthen(fs: &Data, inode: &Inode, size: u64) -> Result<()> {
    // Data written past the committed end must be on the device before the committed size covers it.
    let _frozen = if coherent::size(fs, inode)? > map::size(fs, inode)? {
        coherent::before_growth(inode)?
    } else {
        coherent::freeze(inode)
    };
    let done = commit_size(fs, inode, size);
    inode.delayed.renew(fs, inode);
    if done.is_ok() {
        coherent::resized(inode, size);
    }
    done
}

fn shorten(fs: &Data, inode: &Inode, size: u64) -> Result<()> {
    let has_tables = Format::of(&inode.raw.read()) == Format::Indirect;
    // Remaining data must be on the device before the committed size covers it. Also, a table that loses its
    // last block is freed, and pending write-back may rely on it.
    // The same holds for a cluster.
    let is_needed = has_tables || fs.geo.cluster_ratio_log > 0;
    let rest = size > map::size(fs, inode)? || is_needed && !inode.delayed.is_idle();
    let _frozen = coherent::before_loss(inode, size..u64::MAX, rest)?;
    let done = if size == 0 && emptied::defer(fs, inode)? {
        coherent::drop_cached(fs, inode, coherent::ALL);
        coherent::resized(inode, 0);
        Ok(())
    } else {
        cut(fs, inode, size)
    };
    inode.delayed.renew(fs, inode);
    done
}

/// Sets the committed size to `size`, and frees everything past it.
fn cut(fs: &Data, inode: &Inode, size: u64) -> Result<()> {
    let blocks = (size.div_ceil(fs.geo.block_bytes.into()), u32::MAX.into());
    preload_for_free(fs, inode, blocks)?;
    let committed = map::size(fs, inode)?;
    if size > committed {
        commit_size(fs, inode, size)?;
    }
    let edges = if size < committed {
        let end = size.next_multiple_of(fs.geo.block_bytes.into());
        Edges::prepare(fs, inode, slice::from_ref(&(size..end)))?
    } else {
        if !size.is_multiple_of(fs.geo.block_bytes.into()) {
            regular::zero_in_block(fs, inode, size, u64::MAX)?;
        }
        Edges::none(fs, inode)
    };
    shrink(fs, inode, size, true, edges)
}

/// Increases the committed size to `size`.
fn commit_size(fs: &Data, inode: &Inode, size: u64) -> Result<()> {
    regular::zero_in_block(fs, inode, map::size(fs, inode)?, size)?;
    fs.transact_on(inode, INODE_CREDITS, |h| {
        regular::grow_to(fs, h, inode, size)?;
        regular::touch(fs, inode);
        fs.store(h, inode)
    })
}

/// Number of runs that [`preload_for_free`] checks.
const PRELOAD_RUNS: usize = 64;

/// Reads ahead what freeing file blocks and storing the inode will need, for a few steps: damage and read
/// errors are then found before anything has changed.
///
/// # Errors
/// `Corrupt`; device errors.
pub(crate) fn preload_for_free(fs: &Data, inode: &Inode, (from, to): (u64, u64)) -> Result<()> {
    fs.load_inode_block(inode)?;
    let mut at = from;
    for _ in 0..PRELOAD_RUNS {
        let Some(block) = u32::try_from(at).ok().filter(|_| at < to) else {
            break;
        };
        let most = u32::try_from(to - at).unwrap_or(u32::MAX);
        let found = map::lookup(fs, inode, FileBlock(block), most)?;
        if let Kind::Data(start) | Kind::Unwritten(start) = found.kind {
            map::clusters::check_place(fs, FileBlock(block), start)
                .and_then(|()| fs.check_freeable(start, found.len_blocks.into()))
                .map_err(|e| e.in_inode(inode.ino))?;
        }
        at += u64::from(found.len_blocks);
    }
    Ok(())
}

/// Frees all blocks of an inode, including those of its mapping, and sets its size to 0. Attribute blocks are
/// not part of the mapping. Uses several transactions: no handle may be open.
///
/// # Errors
/// `Corrupt` if blocks cannot belong to the inode; device errors.
pub(crate) fn free_all(fs: &Data, inode: &Inode) -> Result<()> {
    let _io = inode.io_unused();
    let _frozen = coherent::discard_all(fs, inode);
    coherent::resized(inode, 0);
    emptied::carry_out_truncation(fs, inode)?;
    shrink(fs, inode, 0, false, Edges::none(fs, inode))
}

/// Completes a truncation that a crash interrupted: frees everything past the size, and zeroes the rest of
/// the last block.
///
/// # Errors
/// As [`free_all`].
pub(crate) fn free_beyond_size(fs: &Data, inode: &Inode) -> Result<()> {
    let _io = inode.io_exclusive();
    let size = map::size(fs, inode)?;
    if Format::of(&inode.raw.read()) == Format::None {
        return release(fs, inode);
    }
    if inode.kind == Some(FileType::Regular) {
        regular::zero_in_block(fs, inode, size, u64::MAX)?;
    }
    shrink(fs, inode, size, false, Edges::none(fs, inode))
}

/// Shrinks the file to `size`; afterwards an inode with names is no longer an orphan. Once the size is set,
/// cached data past it is dropped. The I/O lock is held exclusively, and the file is frozen.
fn shrink(fs: &Data, inode: &Inode, size: u64, touch: bool, mut edges: Edges<'_>) -> Result<()> {
    if Format::of(&inode.raw.read()) == Format::None {
        return Ok(());
    }
    let before = map::size(fs, inode)?;
    let keep = size.div_ceil(fs.geo.block_bytes.into());
    let credits = map::take_credits(fs, inode).saturating_add(edges.credits());
    let mut end = fs.transact_on(inode, credits.min(fs.max_credits()), |h| {
        let blocks = keep..u64::from(u32::MAX);
        shrink_step(fs, h, inode, (size, blocks), touch, &mut edges)
    })?;
    coherent::drop_cached(fs, inode, size..u64::MAX);
    coherent::resized(inode, size);
    if edges.is_left() {
        inode.tail_is_zero.store(false, Ordering::Relaxed);
        edges.end_left()?;
    }
    while let Some(to) = end {
        let step = fs.transact(map::take_credits(fs, inode), |h| {
            let mut edges = Edges::none(fs, inode);
            shrink_step(fs, h, inode, (size, keep..to), touch, &mut edges)
        });
        end = step.inspect_err(|_| stop_short(fs, inode, before, to))?;
    }
    Ok(())
}

/// One transaction of [`shrink`]. Returns the end of the blocks that remain to be freed or partly zeroed.
fn shrink_step(
    fs: &Data,
    h: &mut Handle<'_>,
    inode: &Inode,
    (size, blocks): (u64, Range<u64>),
    touch: bool,
    edges: &mut Edges<'_>,
) -> Result<Option<u64>> {
    let _map = inode.map_exclusive();
    edges.enter(h)?;
    let left = free_range(fs, h, inode, (blocks.start, blocks.end))?;
    let left = left.or(edges.is_left().then_some(blocks.start));
    if size < map::size(fs, inode)? {
        map::set_size(inode, size);
    }
    if touch {
        regular::touch(fs, inode);
    }
    if left.is_some() {
        // An inode with a holder is in the table.
        orphan::add_named(fs, h, &fs.inode(inode.ino)?)?;
    } else {
        orphan::remove_named(fs, h, inode)?;
        fs.store(h, inode)?;
    }
    Ok(left)
}

/// The first transaction of a truncation, as if a crash followed; returns whether more are needed.
#[cfg(test)]
pub(crate) fn begin_only(fs: &Data, inode: &Inode, size: u64) -> Result<bool> {
    let _io = inode.io_exclusive();
    let end = size.next_multiple_of(fs.geo.block_bytes.into());
    let mut edges = Edges::prepare(fs, inode, slice::from_ref(&(size..end)))?;
    let keep = size.div_ceil(fs.geo.block_bytes.into());
    let credits = map::take_credits(fs, inode) + edges.credits();
    fs.transact(credits, |h| {
        let blocks = keep..u64::from(u32::MAX);
        let left = shrink_step(fs, h, inode, (size, blocks), true, &mut edges)?;
        Ok(left.is_some())
    })
}

/// Handles a truncation that fails half-way: grows the file again to cover the blocks that it still has,
/// since they would otherwise reappear when it grows. `to` is the end of those blocks. If that fails too, the
/// inode stays an orphan.
fn stop_short(fs: &Inodes, inode: &Inode, before: u64, to: u64) {
    let reached = before.min(to << fs.geo.block_log);
    let stopped = map::size(fs, inode).and_then(|size| {
        if size >= reached {
            return Ok(());
        }
        fs.transact(INODE_CREDITS + ORPHAN_CREDITS, |h| {
            let _map = inode.map_exclusive();
            regular::grow_to(fs, h, inode, reached)?;
            orphan::remove_named(fs, h, inode)?;
            fs.store(h, inode)
        })
    });
    if let Err(error) = stopped {
        tracing::warn!(ino = inode.ino.0, %error, "a truncation was left half-done");
    }
}

/// Ends the orphan state of a named inode without mapped blocks.
fn release(fs: &Inodes, inode: &Inode) -> Result<()> {
    fs.transact(INODE_CREDITS + ORPHAN_CREDITS, |h| {
        orphan::remove_named(fs, h, inode)?;
        fs.store(h, inode)
    })
}

/// Unmaps and frees blocks of `from..to`, the last first, as many as the handle's credits allow; keeps enough
/// of them to store the inode ([`map::take_credits`]). The mapping lock is held exclusively. Returns the end
/// of the rest; `None` when done.
pub(crate) fn free_range(
    fs: &Inodes,
    h: &mut Handle<'_>,
    inode: &Inode,
    range: (u64, u64),
) -> Result<Option<u64>> {
    let mut freed: SmallVec<[Extent; 16]> = SmallVec::new();
    let is_metadata = map::is_metadata(inode);
    let budget = map::take_budget(fs, inode, h.credits_left());
    let taken = map::take(fs, h, inode, range, budget, |extent| freed.push(extent))?;
    for extent in freed.iter().filter(|_| is_metadata) {
        (0..u64::from(extent.len)).for_each(|i| h.forget(FsBlock(extent.start.0 + i)));
    }
    for (start, len) in taken.lost {
        fs.free(h, start, len).map_err(|e| e.in_inode(inode.ino))?;
    }
    Ok(taken.left)
}
