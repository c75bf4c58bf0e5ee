//! Where the blocks of a file are: extent trees and indirect maps behind one face.
//!
//! ```text
//!   lookup ──────────► View ─┐                   extents ─┐
//!                            ├─ Nodes, NodesMut ─┤        ├─ i_block and the blocks below it
//!   enter, take, … ──► Tree ─┘                   indirect ┘
//! ```
//!
//! Locks: lookups take the inode's mapping lock shared; changes take it exclusively, inside a handle, and leave the
//! changed inode in memory for the caller to store. A change either happens whole or, where it reports a reason of
//! [`crate::Reason`], has left the tree as it was, so that the handle can end well.

mod convert;
mod credits;
pub(crate) mod extents;
pub(crate) mod indirect;
pub(crate) mod kind;
mod size;
pub(crate) mod state;
mod store;
mod survey;
#[cfg(test)]
mod tests;
mod tree;

use throughline_extfmt::extent::Extent;
use throughline_extfmt::{FileBlock, FsBlock, InodeImage};

use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::inode::Inodes;
use tree::View;

pub(crate) use convert::convert;
pub(crate) use credits::{
    CONVERT_CREDITS, INSERT_CREDITS, is_metadata, table_credits, take_budget, take_credits,
};
pub(crate) use kind::{Kind, Mapping, TableName};
pub(crate) use size::{is_plain, max_size, set_size, size};
use state::State;
pub(crate) use store::Budget;
pub(crate) use survey::{Survey, empty, survey};
pub(crate) use tree::{Format, Spare, Tree, add_blocks};

/// What is at `block`, at most `max` blocks of it (at least 1). Takes the mapping lock shared.
///
/// # Errors
/// Those of reading the mapping; `Corrupt` where it cannot be.
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

/// As [`lookup`], through what this thread remembers of the file. Only for callers that hold the inode's I/O lock, which
/// keeps remembered blocks from being taken away.
///
/// # Errors
/// As [`lookup`].
pub(crate) fn lookup_cached(
    fs: &Inodes,
    inode: &Inode,
    block: FileBlock,
    max: u32,
) -> Result<Mapping> {
    let max = max.max(1);
    if let Some(known) = inode.mapping.recall(block.0.into()) {
        return Ok(known.first(max));
    }
    let epoch = inode.mapping.epoch();
    let _map = inode.map_shared();
    let view = View::new(fs, inode);
    // More than was asked, so that the next calls need not look: an extent costs nothing, pointers are compared one by one.
    let ahead = if view.format == Format::Indirect {
        max.max(LOOK_AHEAD_BLOCKS)
    } else {
        u32::MAX - block.0
    };
    let found = look(&view, block, ahead)?;
    State::remember(epoch, block.0.into(), found);
    Ok(found.first(max))
}

/// Pointers that a lookup for I/O compares, at least.
const LOOK_AHEAD_BLOCKS: u32 = 1024;

/// Up to `max` adjacent blocks from `block` on: the first, and how many; `None` where there is a hole.
///
/// # Errors
/// As [`lookup`].
pub(crate) fn lookup_block_run(
    fs: &Inodes,
    inode: &Inode,
    block: FileBlock,
    max: u32,
) -> Result<Option<(FsBlock, u32)>> {
    let found = lookup(fs, inode, block, max)?;
    Ok(match found.kind {
        Kind::Data(first) => Some((first, found.len_blocks)),
        Kind::Hole | Kind::Unwritten(_) => None,
    })
}

/// Where a new block at `block` would best be: behind the one before it.
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

/// Tables that mapping a hole would need beside its blocks, for indirect maps; extents need them too rarely to ask.
pub(crate) fn tables_for(fs: &Inodes, inode: &Inode, block: FileBlock, len: u32) -> Result<u32> {
    let view = View::new(fs, inode);
    match view.format {
        Format::Indirect => indirect::missing_tables(&view, block.0, len, fs.geo.block_bytes),
        _ => Ok(0),
    }
}

/// The blocks that the mapping may come to need when `entries` more entries of any order and place are entered: for
/// extents; an indirect map's are counted by [`each_missing_table`].
pub(crate) fn nodes_needed(fs: &Inodes, inode: &Inode, entries: u64) -> u64 {
    let raw = inode.raw.read();
    match Format::of(&raw) {
        Format::Extents => extents::nodes_needed(raw.i_block(), fs.geo.block_bytes, entries),
        _ => 0,
    }
}

/// Names each table that mapping the blocks would need and that is not there; none for extents. Takes the mapping lock
/// shared.
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

/// Names each table that leads to the blocks.
pub(crate) fn each_table(
    fs: &Inodes,
    (block, len): (FileBlock, u32),
    found: impl FnMut(TableName),
) -> Result<()> {
    indirect::each_table(block.0, len, fs.geo.block_bytes, found)
}

/// Maps the hole at `extent`, and counts its blocks. The bits of the blocks are the caller's matter.
///
/// # Errors
/// No space for a node, `TooLarge`: nothing has changed then. `Corrupt`, and those of the journal.
pub(crate) fn enter(
    fs: &Inodes,
    h: &mut Handle<'_>,
    inode: &Inode,
    extent: Extent,
    spare: Option<&mut Spare>,
) -> Result<()> {
    add_blocks(fs, inode, extent.len.into())?;
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
    done.or_else(|e| add_blocks(fs, inode, -i64::from(extent.len)).and(Err(e)))
        .map_err(|e| e.in_inode(inode.ino))
}

/// Takes mapped blocks out of the file blocks `from..to`, the last first, as many as `budget` says, frees the nodes
/// that this empties and hands each run to `freed`. The blocks are counted
/// off the inode; their bits are the caller's matter. Answers the end of what is left; `None` when nothing is.
pub(crate) fn take(
    fs: &Inodes,
    h: &mut Handle<'_>,
    inode: &Inode,
    (from, to): (u64, u64),
    budget: Budget,
    mut freed: impl FnMut(Extent),
) -> Result<Option<u64>> {
    let mut blocks = 0i64;
    let mut tree = Tree::new(fs, h, inode, None);
    let count = |extent: Extent| {
        blocks += i64::from(extent.len);
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
    add_blocks(fs, inode, -blocks)?;
    Ok(left)
}

/// Other blocks take the places of those with the data of `old`; the bits of both are the caller's matter. Credits:
/// [`CONVERT_CREDITS`]. Without extents it is one block.
///
/// # Errors
/// No space for a node: nothing has changed then. `Corrupt` where there is other data, and those of the journal.
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

/// The extent that holds a block; `None` where there is none, or there are no extents. Takes the mapping lock shared.
///
/// # Errors
/// Those of reading the mapping; `Corrupt` where it cannot be.
pub(crate) fn extent_at(fs: &Inodes, inode: &Inode, block: FileBlock) -> Result<Option<Extent>> {
    let _map = inode.map_shared();
    let view = View::new(fs, inode);
    match view.format {
        Format::Extents => extents::extent_at(&view, block.0).map_err(|e| e.in_inode(inode.ino)),
        Format::Indirect | Format::None => Ok(None),
    }
}

/// Whether the inode itself has room for the extents, and not for so many more. Takes the mapping lock shared.
///
/// # Errors
/// `Corrupt` for a root that cannot be.
pub(crate) fn is_tight(fs: &Inodes, inode: &Inode, more: usize) -> Result<bool> {
    let _map = inode.map_shared();
    let view = View::new(fs, inode);
    match view.format {
        Format::Extents => extents::is_tight(&view, more).map_err(|e| e.in_inode(inode.ino)),
        Format::Indirect | Format::None => Ok(false),
    }
}

/// Size, root and count of blocks are those of `before` again: a change failed half-way, and reaches the disk no more. What it had
/// changed of nodes below the root stays.
pub(crate) fn put_back(fs: &Inodes, inode: &Inode, before: &InodeImage) {
    let _map = inode.map_exclusive();
    inode.mapping.changed();
    let size = before.size_bytes(&fs.geo).unwrap_or(0);
    {
        let mut raw = inode.raw.write();
        *raw.i_block_mut() = *before.i_block();
        // It was counted so before.
        let _ = raw.set_blocks_512(&fs.geo, before.blocks_512(&fs.geo));
    }
    set_size(inode, size);
}

/// Makes what is mapped in the file blocks `from..to` unwritten, or written; `most` extents at most. Answers where to go
/// on; `None` when done.
///
/// # Errors
/// No space for a node: what was done until then stays, and is valid. `Unsupported` without extents.
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

/// Makes the first unwritten extent in the file blocks `from..to` written. Answers where to go on; `None` when done.
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

/// Runs a change that only extent trees know.
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

/// Gives a directory one more block, behind the last one that its size says. The size grows by a block and the block is
/// counted; the caller fills it ([`Handle::create`]) and stores the inode. Credits: [`INSERT_CREDITS`], the block and its bits.
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

/// Gives an inode a block of metadata (a directory's, a symlink's) at `at`, which is a hole. The mapping lock is held
/// exclusively. The block is counted; size and filling are the caller's matter. Credits: [`INSERT_CREDITS`], the block and its bits.
///
/// # Errors
/// No space, `TooLarge`: nothing has changed then.
pub(crate) fn add_block(
    fs: &Inodes,
    h: &mut Handle<'_>,
    inode: &Inode,
    at: FileBlock,
) -> Result<FsBlock> {
    let block = fs.alloc_block(h, goal(fs, inode, at)?)?;
    let extent = Extent {
        block: at,
        len: 1,
        start: block,
        unwritten: false,
    };
    if let Err(error) = enter(fs, h, inode, extent, None) {
        fs.take_back(h, block)?;
        return Err(error);
    }
    Ok(block)
}
