//! Upper bound of the nodes that a tree may need, for reservations made before the extents are known.
//!
//! A full node of `per` entries is split in the middle, so each half takes `per / 2` entries before it is
//! full again. Only the last node of a level, where files grow, is split at its end; the new node then takes
//! nearly `per`. So `n` entries at any place split each existing node at most once, plus at most four splits
//! per `per` entries. The splits of one level are the insertions into the level above.

use throughline_extfmt::extent::ENTRY_BYTES;

use super::node::{MAX_DEPTH, Node};
use crate::map::store::Root;

/// Capacity of a root.
const ROOT_ENTRIES: u64 = 4;

/// Upper bound of the blocks that inserting `entries` more extents needs for nodes, in any order and at any
/// place. After some are inserted, the rest needs at most this number less the nodes already used.
pub(crate) fn nodes_needed(root: &Root, block_bytes: u32, entries: u64) -> u64 {
    let Ok(node) = Node::new(root) else {
        // An invalid root takes no entries.
        return 0;
    };
    // The header has the size of an entry.
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
            // The root's entries move to a new node.
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

/// Upper bound of the splits that `arriving` entries cause in a level of `there` nodes.
fn split(arriving: u64, per: u64, there: u64) -> u64 {
    let filled = arriving.saturating_mul(4).div_ceil(per);
    arriving.min(there.saturating_add(filled).saturating_add(2))
}
