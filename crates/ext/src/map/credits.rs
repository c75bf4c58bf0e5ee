//! What changes of a mapping touch, at most: credits for the handles that they run in.
//!
//! A change of an extent tree edits the nodes on one way down, and may split each of them and grow the tree: a node made
//! or freed costs itself, the bitmap of its group and the block of its descriptor ([`NODE_CREDITS`]). What is bounded by
//! the file and not by the tree, as freeing its blocks, is cut into steps by [`take_budget`].

use throughline_extfmt::extent;
use throughline_extfmt::inode::{FileType, InodeFlags};

use super::store::Budget;
use super::tree::Format;
use crate::balloc::GROUP_CREDITS;
use crate::inode::Inodes;
use crate::inode::{INODE_CREDITS, Inode};
use crate::orphan::ORPHAN_CREDITS;

/// Levels of nodes below the root of an extent tree, at most.
const LEVELS: u32 = 5;
/// A node that is made or freed.
const NODE_CREDITS: u32 = 1 + GROUP_CREDITS;
/// Tables on the way to a block of an indirect map, at most.
const TABLE_LEVELS: u32 = 3;

/// Entering one extent, beside the bits of the extent itself: a way down, a split at every level and a level more, and the
/// inode.
pub(crate) const INSERT_CREDITS: u32 = LEVELS + (LEVELS + 1) * NODE_CREDITS + 1;

/// Changing the state of a part of an extent: two entries more, so that the leaf may be split twice, and its parent for
/// the second time.
pub(crate) const CONVERT_CREDITS: u32 = INSERT_CREDITS + 2 * NODE_CREDITS;

/// What one step that frees blocks costs whatever it frees: an extent cut in its middle, the ways to both ends of the
/// range, the nodes that go when the tree loses levels, the inode, and what makes it an orphan until the last step.
const TAKE_CREDITS: u32 =
    CONVERT_CREDITS + 2 * LEVELS + LEVELS * NODE_CREDITS + INODE_CREDITS + ORPHAN_CREDITS;

/// Runs that one step frees, at most.
const MOST_RUNS: u32 = 16;
/// Blocks in them, at most.
const MOST_BLOCKS: u32 = 1 << 16;
/// Groups that they fill whole, at most; each run may lie in two more in part.
const MOST_GROUPS: u32 = 8;
/// Blocks of metadata, which are forgotten one by one.
const MOST_METADATA: u32 = 64;

/// Entering a run of `blocks` blocks into an indirect map, beside their bits: the tables of the run, one more on each level
/// for its two ends, and the inode.
pub(crate) fn table_credits(fs: &Inodes, blocks: u32) -> u32 {
    let tables = blocks / (fs.geo.block_bytes / 4).max(1) + 2 * TABLE_LEVELS;
    tables * NODE_CREDITS + 1
}

/// Credits for a step of [`super::take`] with [`take_budget`], the bits of what it frees, and the inode.
pub(crate) fn take_credits(fs: &Inodes, inode: &Inode) -> u32 {
    let metadata = if is_metadata(inode) { MOST_METADATA } else { 0 };
    let most = TAKE_CREDITS
        + MOST_GROUPS * GROUP_CREDITS
        + metadata
        + most_runs(inode) * run_credits(inode);
    most.min(fs.step_credits())
}

/// What a step may free with `credits`, those of [`take_credits`]. The mapping lock is held.
pub(crate) fn take_budget(fs: &Inodes, inode: &Inode, credits: u32) -> Budget {
    let left = credits.saturating_sub(TAKE_CREDITS + MOST_GROUPS * GROUP_CREDITS);
    let metadata = if is_metadata(inode) {
        MOST_METADATA.min(left / 2).max(1)
    } else {
        0
    };
    let runs = left.saturating_sub(metadata) / run_credits(inode).max(1);
    let in_groups = fs.geo.blocks_per_group.saturating_mul(MOST_GROUPS);
    Budget {
        runs: runs.clamp(1, MOST_RUNS) as usize,
        blocks: if metadata > 0 {
            metadata
        } else {
            in_groups.clamp(1, MOST_BLOCKS)
        },
    }
}

/// Whether the blocks of an inode are read and written as metadata: those of what is no regular file, and values of
/// attributes.
pub(crate) fn is_metadata(inode: &Inode) -> bool {
    inode.kind != Some(FileType::Regular) || inode.raw.read().flags().contains(InodeFlags::EA_INODE)
}

/// A run that is freed: the bits at its two ends, and the chain of nodes that it leaves empty.
fn run_credits(inode: &Inode) -> u32 {
    2 * GROUP_CREDITS + depth(inode) * NODE_CREDITS
}

/// Runs that an inode may have for one step.
fn most_runs(inode: &Inode) -> u32 {
    match depth(inode) {
        // As many as its root has entries; an indirect map has nodes always.
        0 => 4,
        _ => MOST_RUNS,
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
