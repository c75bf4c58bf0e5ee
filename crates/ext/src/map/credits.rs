//! Upper bounds of the blocks that mapping changes touch: credits for their handles.
//!
//! A change of an extent tree edits the nodes on one path, and may split each of them and grow the tree. A
//! node that is allocated or freed costs its block, the bitmap of its group and the descriptor block
//! ([`NODE_CREDITS`]). Work bounded by the file rather than by the tree, such as freeing its blocks, is
//! divided into steps by [`take_budget`].

use throughline_extfmt::extent;
use throughline_extfmt::inode::{FileType, InodeFlags};

use super::store::Budget;
use super::tree::Format;
use crate::balloc::GROUP_CREDITS;
use crate::inode::Inodes;
use crate::inode::{INODE_CREDITS, Inode};
use crate::orphan::ORPHAN_CREDITS;

/// Maximum number of node levels below the root of an extent tree.
const LEVELS: u32 = 5;
/// Allocating or freeing a node.
const NODE_CREDITS: u32 = 1 + GROUP_CREDITS;
/// Maximum number of tables on the path to a block of an indirect map.
const TABLE_LEVELS: u32 = 3;

/// Inserting one extent, without the extent's own bits: one path, a split at every level, one new level, and
/// the inode.
pub(crate) const INSERT_CREDITS: u32 = LEVELS + (LEVELS + 1) * NODE_CREDITS + 1;

/// Changing the state of part of an extent: up to two more entries, so the leaf may be split twice, and its
/// parent for the second split.
pub(crate) const CONVERT_CREDITS: u32 = INSERT_CREDITS + 2 * NODE_CREDITS;

/// Moving a node or a table: the new one, its parent, and the old one.
pub(crate) const MOVE_NODE_CREDITS: u32 = 2 * NODE_CREDITS + 1;

/// Fixed cost of a step that frees blocks: an extent cut in its middle, the paths to both ends of the range,
/// nodes freed when the tree loses levels, the inode, and its orphan record until the last step.
const TAKE_CREDITS: u32 =
    CONVERT_CREDITS + 2 * LEVELS + LEVELS * NODE_CREDITS + INODE_CREDITS + ORPHAN_CREDITS;

/// Most runs freed in one step.
const MAX_RUNS: u32 = 16;
/// Most blocks in them.
const MAX_BLOCKS: u32 = 1 << 16;
/// Most groups that they cover completely; each run may cover two more in part.
const MAX_GROUPS: u32 = 8;
/// Most metadata blocks, which are forgotten one by one.
const MAX_METADATA: u32 = 64;

/// Mapping a run of `blocks` blocks in an indirect map, without their bits: the tables of the run, two more
/// per level for its ends, and the inode.
pub(crate) fn table_credits(fs: &Inodes, blocks: u32) -> u32 {
    let tables = blocks / (fs.geo.block_bytes / 4).max(1) + 2 * TABLE_LEVELS;
    tables * NODE_CREDITS + 1
}

/// Credits for a step of [`super::take`] with [`take_budget`], including the bits of the freed blocks and the
/// inode.
pub(crate) fn take_credits(fs: &Inodes, inode: &Inode) -> u32 {
    let metadata = if is_metadata(inode) { MAX_METADATA } else { 0 };
    let most = TAKE_CREDITS
        + MAX_GROUPS * GROUP_CREDITS
        + metadata
        + most_runs(inode) * run_credits(inode);
    most.min(fs.step_credits())
}

/// What a step may free with the given credits, which come from [`take_credits`]. The mapping lock is held.
pub(crate) fn take_budget(fs: &Inodes, inode: &Inode, credits: u32) -> Budget {
    let left = credits.saturating_sub(TAKE_CREDITS + MAX_GROUPS * GROUP_CREDITS);
    let metadata = if is_metadata(inode) {
        MAX_METADATA.min(left / 2).max(1)
    } else {
        0
    };
    let runs = left.saturating_sub(metadata) / run_credits(inode).max(1);
    let in_groups = fs.geo.blocks_per_group.saturating_mul(MAX_GROUPS);
    Budget {
        runs: runs.clamp(1, MAX_RUNS) as usize,
        blocks: if metadata > 0 {
            metadata
        } else {
            in_groups.clamp(1, MAX_BLOCKS)
        },
    }
}

/// Whether an inode's blocks are read and written as metadata: those of anything but a regular file, and
/// those of attribute values.
pub(crate) fn is_metadata(inode: &Inode) -> bool {
    inode.kind != Some(FileType::Regular) || inode.raw.read().flags().contains(InodeFlags::EA_INODE)
}

/// Freeing one run: the bits at its two ends, and the chain of nodes that becomes empty.
fn run_credits(inode: &Inode) -> u32 {
    2 * GROUP_CREDITS + depth(inode) * NODE_CREDITS
}

/// Number of runs of an inode to plan for in one step.
fn most_runs(inode: &Inode) -> u32 {
    match depth(inode) {
        // The number of entries in its root; an indirect map never has depth 0.
        0 => 4,
        _ => MAX_RUNS,
    }
}

/// Levels of nodes below the root.
fn depth(inode: &Inode) -> u32 {
    let raw = inode.raw.read();
    match Format::of(&raw) {
        Format::Extents => {
            extent::Node::new(raw.i_block()).map_or(LEVELS, |node| node.depth().into())
        }
        Format::Indirect => TABLE_LEVELS,
        Format::None => 0,
    }
    .min(LEVELS)
}
