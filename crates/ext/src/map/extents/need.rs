//! How many nodes a tree may come to need: for room that must be promised before it is known what will be entered.
//!
//! A node of `per` entries that is full is split in the middle, so that each half takes `per / 2` entries before it is full
//! again; only the last node of a level, where files grow, is split at its end, and then the new one takes nearly `per`.
//! So `n` entries, wherever they come, split a node that was there before at most once, and beyond that no more than
//! four times for each `per` of them. What splits a level makes is what comes to the level above it.

use throughline_extfmt::extent::ENTRY_BYTES;

use super::node::{MAX_DEPTH, Node};
use crate::map::store::Root;

/// Entries of a root.
const ROOT_ENTRIES: u64 = 4;

/// Blocks for nodes that entering `entries` more entries into the tree may take, at most, whatever their places and their
/// order. Entering some of them leaves no more to need than this less the nodes that it took.
pub(crate) fn nodes_needed(root: &Root, block_bytes: u32, entries: u64) -> u64 {
    let Ok(node) = Node::new(root) else {
        // A root that is none takes no entries.
        return 0;
    };
    // The header is as long as an entry.
    let per = (u64::from(block_bytes) / ENTRY_BYTES as u64)
        .saturating_sub(1)
        .max(4);
    let (depth, len) = (node.depth(), node.len() as u64);
    let mut arriving = entries;
    let mut nodes = 0u64;
    for level in 0..MAX_DEPTH {
        if arriving == 0 {
            break;
        }
        let splits = if level < depth {
            let there = len.saturating_mul(per.saturating_pow(u32::from(depth - 1 - level)));
            split(arriving, per, there)
        } else {
            let room = if level == depth {
                ROOT_ENTRIES.saturating_sub(len)
            } else {
                ROOT_ENTRIES - 1
            };
            if arriving <= room {
                break;
            }
            // The root's entries go into a node of their own.
            nodes = nodes.saturating_add(1);
            if arriving.saturating_add(ROOT_ENTRIES) <= per {
                0
            } else {
                split(arriving, per, 0)
            }
        };
        nodes = nodes.saturating_add(splits);
        arriving = splits;
    }
    nodes
}

/// Splits in a level with `there` nodes that `arriving` entries may cause.
fn split(arriving: u64, per: u64, there: u64) -> u64 {
    let filled = arriving.saturating_mul(4).div_ceil(per);
    arriving.min(there.saturating_add(filled).saturating_add(2))
}
