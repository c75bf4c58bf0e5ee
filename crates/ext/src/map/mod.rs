//! File block mappings: extent trees and indirect maps behind one interface.
//!
//! ```text
//!   lookup ──────────► View ─┐                   extents ─┐
//!                            ├─ Nodes, NodesMut ─┤        ├─ i_block and the blocks below it
//!   enter, take, … ──► Tree ─┘                   indirect ┘
//! ```
//!
//! Locking: lookups take the inode's mapping lock shared. Changes take it exclusively, inside a handle, and
//! leave the changed inode in memory for the caller to store. A change that fails with a [`crate::Reason`]
//! leaves the tree as it was, so that the handle can end normally.

pub(crate) mod clusters;
mod convert;
mod credits;
pub(crate) mod extents;
pub(crate) mod hold;
pub(crate) mod indirect;
pub(crate) mod kind;
mod size;
pub(crate) mod state;
mod store;
mod survey;
#[cfg(test)]
mod tests;
mod tree;

use smallvec::SmallVec;
use throughline_extfmt::extent::Extent;
use throughline_extfmt::{FileBlock, FsBlock, InodeImage};

use crate::balloc::Run;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::inode::Inodes;
use tree::View;

pub(crate) use convert::convert;
pub(crate) use credits::{
    CONVERT_CREDITS, INSERT_CREDITS, MOVE_NODE_CREDITS, is_metadata, table_credits, take_budget,
    take_credits,
};
pub(crate) use kind::{Kind, Mapping, TableName};
pub(crate) use size::{is_plain, max_size, set_size, size};
use state::State;
pub(crate) use store::Budget;
pub(crate) use survey::{Piece, Survey, each_piece, empty, survey};
pub(crate) use tree::{Format, Spare, Tree, add_blocks};

/// Looks up `block`: a run of at most `max` blocks (at least 1). Takes the mapping lock shared.
///
/// # Errors
/// Errors of reading the mapping; `Corrupt` if it is invalid.
pub(crate) fn lookup(fs: &Inodes, inode: &Inode, block: FileBlock, max: u32) -> Result<Mapping> {
    let _map = inode.map_shared();
    look(&View::new(fs, inode), block, max)
}

fn look(view: &View<'_>, block: FileBlock, max: u32) -> Result<Mapping> {
    let max = max.max(1);
    let found = match view.format {
        Format::Extents => extents::lookup(view, block.0, max),
        Format::Indirect => indirect::lookup(view, block.0, max, view.fs.geo.block_bytes),
        Format::None => Ok(Mapping {
            kind: Kind::Hole,
            len_blocks: max,
        }),
    };
    found.map_err(|e| e.in_inode(view.inode.ino))
}

/// As [`lookup`], using this thread's cached extents. The caller must hold the inode's I/O lock, which keeps
/// cached blocks from being freed.
///
/// # Errors
/// As [`lookup`].
pub(crate) fn lookup_cached(
    fs: &Inodes,
    inode: &Inode,
    block: FileBlock,
    max: u32,
) -> Result<Mapping> {
    look_cached(fs, inode, block, max, LOOK_AHEAD_BLOCKS)
}

/// As [`lookup_cached`]. Compares at least `pointers` pointers of an indirect map.
fn look_cached(
    fs: &Inodes,
    inode: &Inode,
    block: FileBlock,
    max: u32,
    pointers: u32,
) -> Result<Mapping> {
    let max = max.max(1);
    if let Some(known) = inode.mapping.recall(block.0.into()) {
        return Ok(known.first(max));
    }
    let epoch = inode.mapping.epoch();
    let _map = inode.map_shared();
    let view = View::new(fs, inode);
    // Look up more than was asked, to save later lookups: for extents this is free, but pointers are compared
    // one by one.
    let ahead = if view.format == Format::Indirect {
        max.max(pointers)
    } else {
        u32::MAX - block.0
    };
    let found = look(&view, block, ahead)?;
    State::remember(epoch, block.0.into(), found);
    Ok(found.first(max))
}

/// Minimum number of pointers that a lookup for I/O compares.
const LOOK_AHEAD_BLOCKS: u32 = 1024;

/// The first block of the run at `block`, and its length up to `max`; `None` for a hole. Uses this thread's
/// cached extents: the caller keeps the file's blocks from being freed, as a directory's lock does.
///
/// # Errors
/// As [`lookup`].
pub(crate) fn lookup_block_run(
    fs: &Inodes,
    inode: &Inode,
    block: FileBlock,
    max: u32,
) -> Result<Option<(FsBlock, u32)>> {
    let found = look_cached(fs, inode, block, max, 1)?;
    Ok(match found.kind {
        Kind::Data(first) => Some((first, found.len_blocks)),
        Kind::Hole | Kind::Unwritten(_) => None,
    })
}

/// The preferred place of a new block at `block`: right after its predecessor.
pub(crate) fn goal(fs: &Inodes, inode: &Inode, block: FileBlock) -> Result<FsBlock> {
    let view = View::new(fs, inode);
    let near = match view.format {
        Format::Extents => extents::goal(&view, block.0)?,
        Format::Indirect => indirect::goal(&view, block.0, fs.geo.block_bytes)?,
        Format::None => None,
    };
    let near = near.filter(|b| b.0 < fs.geo.blocks);
    Ok(near.unwrap_or_else(|| fs.goal_for(inode)))
}

/// Tables that mapping a hole would need in addition to its blocks, for indirect maps. Extents need nodes too
/// rarely to count.
pub(crate) fn tables_for(fs: &Inodes, inode: &Inode, block: FileBlock, len: u32) -> Result<u32> {
    let view = View::new(fs, inode);
    match view.format {
        Format::Indirect => indirect::missing_tables(&view, block.0, len, fs.geo.block_bytes),
        _ => Ok(0),
    }
}

/// Upper bound of the blocks that entering `entries` more extents needs for nodes, in any order and at any
/// place. Indirect maps are counted by [`each_missing_table`] instead.
pub(crate) fn nodes_needed(fs: &Inodes, inode: &Inode, entries: u64) -> u64 {
    let raw = inode.raw.read();
    match Format::of(&raw) {
        Format::Extents => extents::nodes_needed(raw.i_block(), fs.geo.block_bytes, entries),
        _ => 0,
    }
}

/// Calls `found` for each missing table that mapping the blocks would need; none for extents. Takes the
/// mapping lock shared.
pub(crate) fn each_missing_table(
    fs: &Inodes,
    inode: &Inode,
    (block, len): (FileBlock, u32),
    found: impl FnMut(TableName),
) -> Result<()> {
    let _map = inode.map_shared();
    let view = View::new(fs, inode);
    match view.format {
        Format::Indirect => {
            indirect::each_missing_table(&view, block.0, len, fs.geo.block_bytes, found)
        }
        _ => Ok(()),
    }
}

/// Calls `found` for each table that leads to the blocks.
pub(crate) fn each_table(
    fs: &Inodes,
    (block, len): (FileBlock, u32),
    found: impl FnMut(TableName),
) -> Result<()> {
    indirect::each_table(block.0, len, fs.geo.block_bytes, found)
}

/// Maps the hole at `extent`, and counts the clusters that the file gains. Returns them; the caller sets
/// their bits ([`crate::balloc::Blocks::confirm`]).
///
/// # Errors
/// No space for a node, `TooLarge`: nothing has changed then. `Corrupt`; journal errors.
pub(crate) fn enter(
    fs: &Inodes,
    h: &mut Handle<'_>,
    inode: &Inode,
    extent: Extent,
    spare: Option<&mut Spare>,
) -> Result<Option<Run>> {
    let view = View::new(fs, inode);
    check_clustered(&view)?;
    let gained = clusters::gained(&view, &extent).map_err(|e| e.in_inode(inode.ino))?;
    let count = i64::from(gained.map_or(0, |run| run.len) >> fs.geo.cluster_ratio_log);
    add_blocks(fs, inode, count)?;
    let mut tree = Tree::new(fs, h, inode, spare);
    let done = match tree.format() {
        Format::Extents => extents::insert(&mut tree, extent),
        Format::Indirect if !extent.unwritten => indirect::insert(
            &mut tree,
            extent.block.0,
            extent.len,
            extent.start.0,
            fs.geo.block_bytes,
        ),
        Format::Indirect => Err(Error::Unsupported(
            "unwritten blocks in a file without extents".into(),
        )),
        Format::None => Err(Error::corrupt("a file without a mapping is to get blocks")),
    };
    done.or_else(|e| add_blocks(fs, inode, -count).and(Err(e)))
        .map_err(|e| e.in_inode(inode.ino))?;
    Ok(gained)
}

/// A part of a range that was unmapped.
pub(crate) struct Taken {
    /// The end of the rest; `None` when done.
    pub(crate) left: Option<u64>,
    /// The clusters that the file has no more, as runs of blocks.
    pub(crate) lost: clusters::Runs,
}

/// With `bigalloc`, all files have extents.
fn check_clustered(view: &View<'_>) -> Result<()> {
    if view.format != Format::Indirect || view.fs.geo.cluster_ratio_log == 0 {
        return Ok(());
    }
    Err(Error::corrupt("block pointers on a volume of clusters").in_inode(view.inode.ino))
}

/// Unmaps blocks in `from..to`, the last first, as many as `budget` allows. Frees nodes that become empty,
/// and passes each run to `freed`. The clusters that the file loses are subtracted from the inode's count;
/// the caller clears their bits.
pub(crate) fn take(
    fs: &Inodes,
    h: &mut Handle<'_>,
    inode: &Inode,
    (from, to): (u64, u64),
    budget: Budget,
    mut freed: impl FnMut(Extent),
) -> Result<Taken> {
    check_clustered(&View::new(fs, inode))?;
    let mut gone: SmallVec<[Extent; 16]> = SmallVec::new();
    let mut tree = Tree::new(fs, h, inode, None);
    let count = |extent: Extent| {
        gone.push(extent);
        freed(extent);
    };
    let left = match tree.format() {
        Format::Extents => extents::remove(&mut tree, from, to, budget, count),
        Format::Indirect => {
            indirect::remove(&mut tree, from, to, budget, fs.geo.block_bytes, count)
        }
        Format::None => Ok(None),
    };
    let left = left.map_err(|e| e.in_inode(inode.ino))?;
    let view = View::new(fs, inode);
    let lost = clusters::lost(&view, &gone).map_err(|e| e.in_inode(inode.ino))?;
    if gone
        .iter()
        .any(|extent| !clusters::is_within(&lost, extent))
    {
        // The blocks may be mapped again at once, unlike those of a cluster that was freed.
        inode.mapping.set_zeroed(h.tid());
    }
    let blocks: u64 = lost.iter().map(|(_, len)| *len).sum();
    add_blocks(fs, inode, -((blocks >> fs.geo.cluster_ratio_log) as i64))?;
    Ok(Taken { left, lost })
}

/// Replaces the blocks of `old` by others; the caller updates the bits of both. Credits: [`CONVERT_CREDITS`].
/// In an indirect map, `old` must be a single block.
///
/// # Errors
/// No space for a node: nothing has changed then. `Corrupt` if other data is mapped there; journal errors.
pub(crate) fn replace(
    fs: &Inodes,
    h: &mut Handle<'_>,
    inode: &Inode,
    old: &Extent,
    with: FsBlock,
) -> Result<()> {
    let mut tree = Tree::new(fs, h, inode, None);
    let done = match tree.format() {
        Format::Extents => extents::replace_run(&mut tree, old, with),
        Format::Indirect => indirect::replace_block(&mut tree, old, with, fs.geo.block_bytes),
        Format::None => Err(Error::corrupt("a file without a mapping has blocks")),
    };
    done.map_err(|e| e.in_inode(inode.ino))
}

/// Moves nodes or tables from `limit` on to other blocks, until `moved` has `most` of their new places
/// (credits: [`MOVE_NODE_CREDITS`] for each, and those of the inode). The allocator must not offer blocks
/// from `limit` on.
///
/// # Errors
/// No space for a node: what was moved remains so. `Corrupt`; journal errors.
pub(crate) fn move_nodes(
    fs: &Inodes,
    h: &mut Handle<'_>,
    inode: &Inode,
    (limit, most): (FsBlock, u32),
    moved: &mut Vec<FsBlock>,
) -> Result<()> {
    let mut tree = Tree::new(fs, h, inode, None);
    let done = match tree.format() {
        Format::Extents => extents::move_nodes(&mut tree, (limit, most), moved),
        Format::Indirect => indirect::move_tables(&mut tree, (limit, most), moved),
        Format::None => Ok(()),
    };
    done.map_err(|e| e.in_inode(inode.ino))
}

/// The extent that contains a block; `None` if there is none, or the file does not use extents. Takes the
/// mapping lock shared.
///
/// # Errors
/// Errors of reading the mapping; `Corrupt` if it is invalid.
pub(crate) fn extent_at(fs: &Inodes, inode: &Inode, block: FileBlock) -> Result<Option<Extent>> {
    let _map = inode.map_shared();
    let view = View::new(fs, inode);
    match view.format {
        Format::Extents => extents::extent_at(&view, block.0).map_err(|e| e.in_inode(inode.ino)),
        Format::Indirect | Format::None => Ok(None),
    }
}

/// Whether all extents are in the inode's root, which has no room for `more` others. Takes the mapping lock
/// shared.
///
/// # Errors
/// `Corrupt` for an invalid root.
pub(crate) fn is_tight(fs: &Inodes, inode: &Inode, more: usize) -> Result<bool> {
    let _map = inode.map_shared();
    let view = View::new(fs, inode);
    match view.format {
        Format::Extents => extents::is_tight(&view, more).map_err(|e| e.in_inode(inode.ino)),
        Format::Indirect | Format::None => Ok(false),
    }
}

/// Restores size, root and block count from `before`, after a change failed half-way and will not be
/// committed. Changes to nodes below the root remain.
pub(crate) fn put_back(fs: &Inodes, inode: &Inode, before: &InodeImage) {
    let _map = inode.map_exclusive();
    inode.mapping.changed();
    let size = before.size_bytes(&fs.geo).unwrap_or(0);
    {
        let mut raw = inode.raw.write();
        *raw.i_block_mut() = *before.i_block();
        // The same count was stored before, so it fits.
        let _ = raw.set_blocks_512(&fs.geo, before.blocks_512(&fs.geo));
    }
    set_size(inode, size);
}

/// Marks the mapped blocks in `from..to` as unwritten or written, at most `most` extents. Returns where to
/// continue; `None` when done.
///
/// # Errors
/// No space for a node: the changes made so far remain, and are valid. `Unsupported` without extents.
pub(crate) fn set_unwritten(
    fs: &Inodes,
    h: &mut Handle<'_>,
    inode: &Inode,
    (from, to): (u64, u64),
    unwritten: bool,
    most: usize,
) -> Result<Option<u64>> {
    if unwritten {
        inode.mapping.set_zeroed(h.tid());
    }
    with_extents(fs, h, inode, |tree| {
        extents::set_unwritten(tree, from, to, unwritten, most)
    })
}

/// Marks the first unwritten extent in `from..to` as written. Returns where to continue; `None` when done.
///
/// # Errors
/// As [`set_unwritten`].
pub(crate) fn set_written(
    fs: &Inodes,
    h: &mut Handle<'_>,
    inode: &Inode,
    (from, to): (u64, u64),
    spare: &mut Spare,
) -> Result<Option<u64>> {
    change_extents(fs, h, inode, Some(spare), |tree| {
        extents::set_unwritten(tree, from, to, false, 1)
    })
}

/// Runs a change that only extent trees support.
pub(crate) fn with_extents<'a, 'h, R>(
    fs: &'a Inodes,
    h: &'a mut Handle<'h>,
    inode: &'a Inode,
    change: impl FnOnce(&mut Tree<'a, 'h>) -> Result<R>,
) -> Result<R> {
    change_extents(fs, h, inode, None, change)
}

fn change_extents<'a, 'h, R>(
    fs: &'a Inodes,
    h: &'a mut Handle<'h>,
    inode: &'a Inode,
    spare: Option<&'a mut Spare>,
    change: impl FnOnce(&mut Tree<'a, 'h>) -> Result<R>,
) -> Result<R> {
    let mut tree = Tree::new(fs, h, inode, spare);
    if tree.format() != Format::Extents {
        return Err(Error::Unsupported(
            "this change of a file without extents".into(),
        ));
    }
    change(&mut tree).map_err(|e| e.in_inode(inode.ino))
}

/// Appends a block to a directory. The size grows by one block, and the block is counted; the caller fills it
/// ([`Handle::create`]) and stores the inode. Credits: [`INSERT_CREDITS`], the block and its bits.
///
/// # Errors
/// No space, `TooLarge`: nothing has changed then.
pub(crate) fn append_block(fs: &Inodes, h: &mut Handle<'_>, inode: &Inode) -> Result<FsBlock> {
    let _map = inode.map_exclusive();
    let block_bytes = u64::from(fs.geo.block_bytes);
    let size = inode
        .raw
        .read()
        .size_bytes(&fs.geo)
        .map_err(|e| Error::from(e).in_inode(inode.ino))?;
    let end = size.div_ceil(block_bytes);
    let at = u32::try_from(end)
        .ok()
        .filter(|b| *b < u32::MAX)
        .map(FileBlock)
        .ok_or(Reason::TooLarge)?;
    let block = add_block(fs, h, inode, at)?;
    set_size(inode, (end + 1) * block_bytes);
    Ok(block)
}

/// Allocates a metadata block (of a directory or symlink) for the hole at `at`. The mapping lock is held
/// exclusively. The block is counted; the caller sets the size and fills it. Credits: [`INSERT_CREDITS`], the
/// block and its bits.
///
/// # Errors
/// No space, `TooLarge`: nothing has changed then.
pub(crate) fn add_block(
    fs: &Inodes,
    h: &mut Handle<'_>,
    inode: &Inode,
    at: FileBlock,
) -> Result<FsBlock> {
    let goal = goal(fs, inode, at)?;
    let placed = clusters::place(fs, inode, at, 1, |want| fs.claim(goal, want))?;
    let extent = Extent {
        block: at,
        len: 1,
        start: placed.data.start,
        unwritten: false,
    };
    match enter(fs, h, inode, extent, None) {
        Ok(gained) => gained.map_or(Ok(()), |run| fs.confirm(h, run))?,
        Err(error) => {
            placed.claimed.into_iter().for_each(|run| fs.release(run));
            return Err(error);
        }
    }
    Ok(placed.data.start)
}
