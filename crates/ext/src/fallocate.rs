//! `fallocate`: preallocating ranges of a file, punching holes, zeroing, and collapsing or inserting ranges.
//!
//! Each call has exclusive access to the file. Long ranges take several transactions, each of which leaves
//! a sound file, so a crash leaves part of the work done. On `NoSpace`, zeroed and moved ranges stay so,
//! and blocks allocated by the call are freed. A change that fits in one transaction is atomic: partly
//! zeroed blocks are replaced in the same transaction ([`crate::edge`]), and a collapse closes its gap in
//! it.

use std::ops::Range;

use rustix::fs::FallocateFlags;
use throughline_extfmt::FileBlock;
use throughline_extfmt::extent::{Extent, MAX_UNWRITTEN_LEN};

use crate::balloc::GROUP_CREDITS;
use crate::coherent;
use crate::data::Data;
use crate::edge::Edges;
use crate::emptied;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inline;
use crate::inode::{INODE_CREDITS, Inode, Inodes};
use crate::map::{self, CONVERT_CREDITS, Format, INSERT_CREDITS, Kind, Mapping, clusters, extents};
use crate::regular;
use crate::truncate;

/// What `fallocate` does with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Allocates the holes in the range. A range past the end extends the file.
    Allocate,
    /// Allocates the holes, and keeps the size.
    KeepSize,
    /// Turns the range into a hole. The size stays.
    PunchHole,
    /// Makes the range read as zero, with its blocks allocated. A range past the end extends the file.
    ZeroRange,
    /// Makes the range read as zero, and keeps the size.
    ZeroRangeKeepSize,
    /// Removes the range and moves the data after it down. Whole blocks only (clusters with `bigalloc`),
    /// ending before the end of the file.
    Collapse,
    /// Inserts a hole and moves the data after it up. Whole blocks only (clusters with `bigalloc`), beginning
    /// within the file.
    Insert,
}

impl Fallocate {
    /// What the flags of fallocate(2) (`FALLOC_FL_`) mean; `None` for a combination that ext4 does not have.
    pub fn of_flags(flags: u32) -> Option<Fallocate> {
        let flags = FallocateFlags::from_bits(flags)?;
        let keep = FallocateFlags::KEEP_SIZE;
        Some(match flags {
            flags if flags.is_empty() => Fallocate::Allocate,
            flags if flags == keep => Fallocate::KeepSize,
            flags if flags == keep | FallocateFlags::PUNCH_HOLE => Fallocate::PunchHole,
            FallocateFlags::ZERO_RANGE => Fallocate::ZeroRange,
            flags if flags == keep | FallocateFlags::ZERO_RANGE => Fallocate::ZeroRangeKeepSize,
            FallocateFlags::COLLAPSE_RANGE => Fallocate::Collapse,
            FallocateFlags::INSERT_RANGE => Fallocate::Insert,
            _ => return None,
        })
    }
}

/// Extent leaves shifted in one transaction.
const LEAVES_PER_STEP: usize = 8;
/// Credits for shifting them: each leaf and all nodes above it.
const LEAVES_CREDITS: u32 = LEAVES_PER_STEP as u32 * 7;

/// A range of file blocks.
#[derive(Clone, Copy)]
struct Span {
    from: u64,
    to: u64,
}

/// What is left to do of a collapse.
struct Collapse {
    /// The end of the blocks to free.
    free_to: Option<u64>,
    /// The first block to move.
    shift_from: Option<u64>,
}

impl Data {
    /// Changes the allocation of `len` bytes from `offset` on; see [`Fallocate`].
    ///
    /// # Errors
    /// `Invalid` for an empty range, or a range that must be whole blocks and is not; `TooLarge`, `NoSpace`,
    /// `ReadOnly`, `Permission`; `Unsupported` for a file without extents, except for punching holes;
    /// `Corrupt`; device errors.
    pub fn fallocate(&self, inode: &Inode, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.check_may_write(inode)?;
        if len == 0 {
            return Err(Reason::Invalid("the range is empty").into());
        }
        if !matches!(mode, Fallocate::Allocate | Fallocate::KeepSize) {
            self.check_overwrite(inode)?;
        }
        let most = map::max_size(self, inode);
        let end = match offset.checked_add(len) {
            Some(end) if end <= most => end,
            // Nothing exists past the maximum file size, so there is nothing to remove.
            _ if mode == Fallocate::PunchHole => most.max(offset),
            _ => return Err(Reason::TooLarge.into()),
        };
        fallocate_exclusive(self, inode, mode, offset, end)?;
        self.data_changed(inode)
    }
}

fn fallocate_exclusive(
    fs: &Data,
    inode: &Inode,
    mode: Fallocate,
    offset: u64,
    end: u64,
) -> Result<()> {
    let _io = inode.io_exclusive();
    if regular::is_inline(inode) {
        inline::spill(fs, inode)?;
    }
    emptied::carry_out_truncation(fs, inode)?;
    let extents = Format::of(&inode.raw.read()) == Format::Extents;
    if !extents && mode != Fallocate::PunchHole {
        return Err(Error::Unsupported(
            "fallocate of a file without extents, except for punching holes".into(),
        ));
    }
    let done = match mode {
        Fallocate::Allocate => allocate_while_dirty(fs, inode, offset, end, true),
        Fallocate::KeepSize => allocate_while_dirty(fs, inode, offset, end, false),
        Fallocate::PunchHole => punch(fs, inode, offset, end),
        Fallocate::ZeroRange => zero_range(fs, inode, offset, end, true),
        Fallocate::ZeroRangeKeepSize => zero_range(fs, inode, offset, end, false),
        Fallocate::Collapse => collapse(fs, inode, offset, end),
        Fallocate::Insert => insert_range(fs, inode, offset, end),
    };
    if done.as_ref().is_err_and(Error::changed_nothing) {
        // Part of the change may have been made.
        coherent::drop_clean(inode);
    }
    done
}

/// The blocks that a byte range touches.
fn touched(fs: &Data, offset: u64, end: u64) -> Span {
    Span {
        from: offset >> fs.geo.block_log,
        to: end.div_ceil(fs.geo.block_bytes.into()),
    }
}

/// The blocks that lie fully inside a byte range. If the range ends at or past the end of the file, the last
/// block counts as full.
fn whole(fs: &Data, offset: u64, end: u64, size: u64) -> Span {
    let bytes = u64::from(fs.geo.block_bytes);
    let to = if end >= size {
        end.div_ceil(bytes)
    } else {
        end / bytes
    };
    let from = offset.div_ceil(bytes);
    Span {
        from,
        to: to.max(from),
    }
}

/// Allocates while other parts of the file may be dirty. Dirty data in the range has reserved space, and is
/// written back first.
fn allocate_while_dirty(fs: &Data, inode: &Inode, offset: u64, end: u64, grow: bool) -> Result<()> {
    let seen = coherent::size(fs, inode)?;
    // Data written past the committed end must be on the device before a size that covers it is committed.
    let _frozen = if grow && end > seen && seen > map::size(fs, inode)? {
        coherent::before_growth(inode)?
    } else {
        // Dirty data beside the range may have reserved a cluster that the range needs.
        let clusters = clusters_of(fs, offset, end);
        coherent::flush_promised(inode, clusters)?;
        coherent::freeze(inode)
    };
    let done = allocate(fs, inode, offset, end, grow);
    inode.delayed.renew(fs, inode);
    coherent::resized(inode, map::size(fs, inode)?.max(seen));
    done
}

/// The bytes of the clusters that a byte range touches.
fn clusters_of(fs: &Data, offset: u64, end: u64) -> Range<u64> {
    let bytes = cluster_bytes(fs);
    let end = end.checked_next_multiple_of(bytes).unwrap_or(u64::MAX);
    offset - offset % bytes..end
}

fn cluster_bytes(fs: &Inodes) -> u64 {
    u64::from(fs.geo.block_bytes) << fs.geo.cluster_ratio_log
}

/// Sets the size last. If there is not enough space, frees what it allocated, so that a failed call leaves
/// the file's allocation and size unchanged.
fn allocate(fs: &Data, inode: &Inode, offset: u64, end: u64, grow: bool) -> Result<()> {
    let size = map::size(fs, inode)?;
    if grow && end > size {
        regular::zero_in_block(fs, inode, size, end)?;
    }
    let mut taken = Vec::new();
    let blocks = touched(fs, offset, end);
    match allocate_blocks(fs, inode, blocks, &mut taken) {
        Ok(()) => grow_and_touch(fs, inode, if grow { end } else { 0 }),
        Err(error) => {
            for run in taken {
                free_again(fs, inode, run)?;
            }
            Err(error)
        }
    }
}

/// Frees blocks that were just allocated.
fn free_again(fs: &Data, inode: &Inode, blocks: Span) -> Result<()> {
    let mut end = Some(blocks.to);
    while let Some(to) = end {
        end = fs.with_room(|| {
            fs.transact_on(inode, map::take_credits(fs, inode), |h| {
                let _map = inode.map_exclusive();
                let left = truncate::free_range(fs, h, inode, (blocks.from, to));
                fs.store(h, inode)?;
                left
            })
        })?;
    }
    Ok(())
}

/// Allocates the holes in a range, and adds them to `taken`.
fn allocate_blocks(fs: &Data, inode: &Inode, blocks: Span, taken: &mut Vec<Span>) -> Result<()> {
    let mut at = blocks.from;
    while at < blocks.to {
        let left = u32::try_from(blocks.to - at).unwrap_or(u32::MAX);
        let found = map::lookup(fs, inode, FileBlock(at as u32), left)?;
        let len = match found.kind {
            Kind::Hole => fs.with_room(|| allocate_hole(fs, inode, at, found))?,
            Kind::Data(_) | Kind::Unwritten(_) => found.len_blocks,
        };
        let to = at + u64::from(len);
        if matches!(found.kind, Kind::Hole) {
            match taken.last_mut() {
                Some(last) if last.to == at => last.to = to,
                _ => taken.push(Span { from: at, to }),
            }
        }
        at = to;
    }
    Ok(())
}

/// Allocates the first run of a hole as unwritten. Returns its length in blocks.
fn allocate_hole(fs: &Data, inode: &Inode, at: u64, hole: Mapping) -> Result<u32> {
    let at = FileBlock(at as u32);
    let goal = map::goal(fs, inode, at)?;
    let want = clusters::fitting(fs, at, hole.len_blocks, MAX_UNWRITTEN_LEN);
    let (_held, want) = map::hold::blocks(fs, inode, at, want)?;
    let placed = clusters::place(fs, inode, at, want, |want| fs.claim(goal, want))?;
    let extent = Extent {
        block: at,
        len: placed.data.len,
        start: placed.data.start,
        unwritten: true,
    };
    let entered = fs.transact_on(inode, INSERT_CREDITS + GROUP_CREDITS + INODE_CREDITS, |h| {
        let _map = inode.map_exclusive();
        let gained = map::enter(fs, h, inode, extent, None)?;
        gained.map_or(Ok(()), |run| fs.confirm(h, run))?;
        fs.store(h, inode)
    });
    match entered {
        Ok(()) => Ok(extent.len),
        Err(error) => {
            if error.changed_nothing() {
                placed.claimed.into_iter().for_each(|run| fs.release(run));
            }
            Err(error)
        }
    }
}

/// Records that the file changed, and extends it to `size` if it was smaller.
fn grow_and_touch(fs: &Data, inode: &Inode, size: u64) -> Result<()> {
    let old = map::size(fs, inode)?;
    if size > old {
        regular::zero_in_block(fs, inode, old, size)?;
    }
    fs.transact_on(inode, INODE_CREDITS, |h| {
        regular::grow_to(fs, h, inode, size)?;
        regular::touch(fs, inode);
        fs.store(h, inode)
    })
}

/// The partial blocks at the edges of a range.
fn edges<'a>(
    fs: &'a Data,
    inode: &'a Inode,
    (offset, end): (u64, u64),
    whole: Span,
) -> Result<Edges<'a>> {
    let log = fs.geo.block_log;
    let (first, last) = (whole.from << log, whole.to << log);
    Edges::prepare(fs, inode, &[offset..end.min(first), last.max(offset)..end])
}

/// Completes the edges that got no new block, once the change is durable.
fn end_edges(edges: Edges<'_>) -> Result<()> {
    match edges.is_left() {
        true => edges.end_left(),
        false => Ok(()),
    }
}

fn punch(fs: &Data, inode: &Inode, offset: u64, end: u64) -> Result<()> {
    let size = coherent::size(fs, inode)?;
    let _frozen = coherent::before_loss(inode, offset..end, true)?;
    // The committed size may depend on bytes that are about to be removed.
    grow_and_touch(fs, inode, size)?;
    let whole = whole(fs, offset, end, size);
    truncate::preload_for_free(fs, inode, (offset >> fs.geo.block_log, whole.to))?;
    let mut edges = edges(fs, inode, (offset, end), whole)?;
    let mut to = Some(whole.to);
    let mut lost = end;
    while let Some(next) = to {
        to = fs.with_room(|| punch_step(fs, inode, (whole.from, next), &mut edges))?;
        let from = to.map_or(offset, |to| to << fs.geo.block_log);
        coherent::drop_cached(fs, inode, from..lost);
        lost = from;
    }
    end_edges(edges)
}

/// Punches in one transaction. Returns the end of the blocks still to be freed.
fn punch_step(
    fs: &Data,
    inode: &Inode,
    blocks: (u64, u64),
    edges: &mut Edges<'_>,
) -> Result<Option<u64>> {
    let credits = map::take_credits(fs, inode).saturating_add(edges.credits());
    let credits = credits.min(fs.max_credits());
    fs.transact_on(inode, credits, |h| {
        let _map = inode.map_exclusive();
        edges.enter(h)?;
        let left = truncate::free_range(fs, h, inode, blocks);
        fs.store(h, inode)?;
        left
    })
}

fn zero_range(fs: &Data, inode: &Inode, offset: u64, end: u64, grow: bool) -> Result<()> {
    let size = coherent::size(fs, inode)?;
    let _frozen = coherent::before_loss(inode, offset..end, true)?;
    grow_and_touch(fs, inode, size)?;
    let done = zero_on_device(fs, inode, offset, end, grow);
    coherent::resized(inode, map::size(fs, inode)?);
    done
}

fn zero_on_device(fs: &Data, inode: &Inode, offset: u64, end: u64, grow: bool) -> Result<()> {
    let whole = whole(fs, offset, end, map::size(fs, inode)?);
    fs.load_inode_block(inode)?;
    let mut edges = edges(fs, inode, (offset, end), whole)?;
    let mut at = Some(whole.from);
    let credits = fs.step_credits();
    let most = (credits.saturating_sub(INODE_CREDITS) / CONVERT_CREDITS).max(1);
    while let Some(from) = at {
        at = fs.with_room(|| {
            let credits = most * CONVERT_CREDITS + INODE_CREDITS + edges.credits();
            let credits = credits.min(fs.max_credits());
            fs.transact_on(inode, credits, |h| {
                let _map = inode.map_exclusive();
                edges.enter(h)?;
                let range = (from, whole.to);
                let next = map::set_unwritten(fs, h, inode, range, true, most as usize);
                fs.store(h, inode)?;
                next
            })
        })?;
        let reached = at.map_or(end, |at| at << fs.geo.block_log);
        coherent::drop_cached(fs, inode, offset..reached);
    }
    // Edges that are in the journal are committed when they end: with the larger size.
    let allocated = allocate(fs, inode, offset, end, grow);
    end_edges(edges)?;
    allocated
}

fn collapse(fs: &Data, inode: &Inode, offset: u64, end: u64) -> Result<()> {
    let blocks = aligned(fs, offset, end)?;
    let size = coherent::size(fs, inode)?;
    if end >= size {
        return Err(
            Reason::Invalid("a range to collapse must end before the end of the file").into(),
        );
    }
    let _frozen = coherent::before_move(inode)?;
    grow_and_touch(fs, inode, size)?;
    let done = collapse_on_device(fs, inode, blocks, size - (end - offset));
    coherent::resized(inode, map::size(fs, inode)?);
    done
}

fn collapse_on_device(fs: &Data, inode: &Inode, blocks: Span, size: u64) -> Result<()> {
    truncate::preload_for_free(fs, inode, (blocks.from, blocks.to))?;
    let shift = LEAVES_CREDITS + INODE_CREDITS;
    let both = map::take_credits(fs, inode) + shift;
    let credits = both.min(fs.max_credits()).max(shift);
    let mut left = Collapse {
        free_to: Some(blocks.to),
        shift_from: Some(blocks.to),
    };
    while left.shift_from.is_some() {
        fs.with_room(|| {
            fs.transact_on(inode, credits, |h| {
                let _map = inode.map_exclusive();
                let done = collapse_step(fs, h, inode, blocks, &mut left);
                if left.shift_from.is_none() {
                    map::set_size(inode, size);
                }
                regular::touch(fs, inode);
                fs.store(h, inode)?;
                done
            })
        })?;
        coherent::drop_cached(fs, inode, blocks.from << fs.geo.block_log..u64::MAX);
    }
    Ok(())
}

/// Frees blocks. Once all are freed, closes the gap if the credits suffice.
fn collapse_step(
    fs: &Data,
    h: &mut Handle<'_>,
    inode: &Inode,
    blocks: Span,
    left: &mut Collapse,
) -> Result<()> {
    if let Some(to) = left.free_to {
        left.free_to = truncate::free_range(fs, h, inode, (blocks.from, to))?;
        if left.free_to.is_some() || h.credits_left() < LEAVES_CREDITS + INODE_CREDITS {
            return Ok(());
        }
    }
    let Some(from) = left.shift_from else {
        return Ok(());
    };
    let by = (blocks.to - blocks.from) as u32;
    left.shift_from = map::with_extents(fs, h, inode, |t| {
        extents::shift_left(t, from, by, LEAVES_PER_STEP)
    })?;
    Ok(())
}

fn insert_range(fs: &Data, inode: &Inode, offset: u64, end: u64) -> Result<()> {
    let blocks = aligned(fs, offset, end)?;
    let size = coherent::size(fs, inode)?;
    if offset >= size {
        return Err(Reason::Invalid("a range to insert must begin within the file").into());
    }
    let new_size = size
        .checked_add(end - offset)
        .filter(|s| *s <= map::max_size(fs, inode));
    let new_size = new_size.ok_or(Reason::TooLarge)?;
    let _frozen = coherent::before_move(inode)?;
    grow_and_touch(fs, inode, size)?;
    let done = insert_on_device(fs, inode, blocks, new_size);
    coherent::resized(inode, map::size(fs, inode)?);
    done
}

fn insert_on_device(fs: &Data, inode: &Inode, blocks: Span, new_size: u64) -> Result<()> {
    fs.load_inode_block(inode)?;
    let by = (blocks.to - blocks.from) as u32;
    let mut cursor = Some(extents::END);
    while let Some(to) = cursor {
        cursor = fs.with_room(|| {
            let credits = CONVERT_CREDITS + LEAVES_CREDITS + INODE_CREDITS;
            fs.transact_on(inode, credits, |h| {
                let _map = inode.map_exclusive();
                let next = map::with_extents(fs, h, inode, |tree| {
                    extents::split_at(tree, blocks.from as u32)?;
                    extents::shift_right(tree, blocks.from, to, by, LEAVES_PER_STEP)
                });
                // Extend the size first, so that no extent ever lies past it.
                if next.is_ok() {
                    regular::grow_to(fs, h, inode, new_size)?;
                    regular::touch(fs, inode);
                }
                fs.store(h, inode)?;
                next
            })
        })?;
        coherent::drop_cached(fs, inode, blocks.from << fs.geo.block_log..u64::MAX);
    }
    Ok(())
}

fn aligned(fs: &Inodes, offset: u64, end: u64) -> Result<Span> {
    // A cluster of the file stays a cluster of the volume.
    let bytes = cluster_bytes(fs);
    if !offset.is_multiple_of(bytes) || !end.is_multiple_of(bytes) {
        return Err(
            Reason::Invalid("the range is not whole blocks, or clusters with bigalloc").into(),
        );
    }
    Ok(Span {
        from: offset >> fs.geo.block_log,
        to: end >> fs.geo.block_log,
    })
}
