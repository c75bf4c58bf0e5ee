//! Extent trees: a root of four entries in the inode, blocks of entries below it, up to five levels.
//!
//! ```text
//!   i_block:  [ key 0 ▸ | key 900 ▸ ]                     depth 1
//!                │            └──► leaf [ 900+50 → 7000 | 1000+8 → 9000 (unwritten) ]
//!                └───────────────► leaf [   0+32 → 5000 |   40+10 → 5032 ]
//! ```
//!
//! Invariants, checked during descent and kept by every edit:
//! - The keys of a node ascend and lie within the bounds given by its parent; the first equals the parent's
//!   key.
//! - The extents of the whole tree ascend and do not overlap. Only the root may be empty.
//! - A node's depth is one less than its parent's, so a descent ends after five steps whatever is on disk.
//!   Since the bounds shrink, a block reachable by two paths is detected.
//!
//! All changes use one primitive: [`change`] descends to the leaf of a block, lets a plan replace a few
//! adjacent entries by others, splits nodes to make room, and updates the keys above. The tree is valid after
//! each split, so running out of space half-way leaves nothing to undo.

mod change;
mod need;
mod node;
mod relocate;
mod remove;
mod shift;
#[cfg(test)]
mod tests;

use std::ops::Deref;

use smallvec::SmallVec;
use throughline_extfmt::FsBlock;

use super::store::{Bytes, Nodes, Root};
use super::{Kind, Mapping};
use crate::error::{Error, Result};

pub(crate) use change::{extent_at, insert, is_tight, replace_run, set_unwritten, split_at};
pub(crate) use need::nodes_needed;
pub(crate) use node::{Extent, clip};
pub(crate) use relocate::{move_nodes, walk};
pub(crate) use remove::remove;
pub(crate) use shift::{shift_left, shift_right};

use node::{MAX_DEPTH, Node};

/// One past the last file block that can be mapped.
pub(crate) const END: u64 = u32::MAX as u64;

/// A node on the path from the root to a leaf.
struct Step<N> {
    /// Its block; `None` for the root.
    at: Option<FsBlock>,
    bytes: Bytes<N>,
    /// In an index node, the child taken; in the leaf, the insertion point of the block, so that the entry
    /// before it may contain the block.
    pos: usize,
}

impl<N: Deref<Target = [u8]>> Step<N> {
    fn node(&self) -> Result<Node<'_>> {
        Node::new(&self.bytes).map_err(|e| in_block(e, self.at))
    }
}

/// The path from the root to a leaf.
struct Path<N> {
    steps: SmallVec<[Step<N>; 2]>,
    /// The first file block of the next leaf; [`END`] in the last one.
    upper: u64,
}

impl<N: Deref<Target = [u8]>> Path<N> {
    fn leaf(&self) -> &Step<N> {
        &self.steps[self.steps.len() - 1]
    }
}

fn in_block(error: Error, at: Option<FsBlock>) -> Error {
    match at {
        Some(block) => error.in_block(block),
        None => error,
    }
}

/// The nodes below the root of a tree with at most one level; `None` if there are more than `most`, or more
/// levels.
pub(crate) fn nodes<S: Nodes>(store: &S, most: usize) -> Result<Option<Vec<FsBlock>>> {
    let root = store.root();
    let node = Node::new(&root)?;
    match node.depth() {
        0 => Ok(Some(Vec::new())),
        1 if node.len() <= most => Ok(Some((0..node.len()).map(|at| node.child(at)).collect())),
        _ => Ok(None),
    }
}

/// An empty tree.
pub(crate) fn empty_root() -> Root {
    let mut root = [0; super::store::ROOT_BYTES];
    node::fill(&mut root, 0, None);
    root
}

/// Descends to the leaf that contains `block` or would contain it.
fn descend<S: Nodes>(store: &S, block: u32) -> Result<Path<S::Node>> {
    let mut steps = SmallVec::new();
    let mut bytes = Bytes::Root(store.root());
    let mut at = None;
    let (mut lower, mut upper) = (0, END);
    let mut depth = None;
    for _ in 0..=MAX_DEPTH {
        let node = Node::new(&bytes)
            .and_then(|n| check_bounds(n, at.is_some(), depth, lower, upper).map(|()| n));
        let node = node.map_err(|e| in_block(e, at))?;
        let pos = node.search(block);
        if node.depth() == 0 {
            steps.push(Step { at, bytes, pos });
            return Ok(Path { steps, upper });
        }
        let pos = pos.saturating_sub(1);
        lower = u64::from(node.key(pos));
        if pos + 1 < node.len() {
            upper = u64::from(node.key(pos + 1));
        }
        depth = Some(node.depth() - 1);
        let child = node.child(pos);
        steps.push(Step { at, bytes, pos });
        store.check_run(child, 1)?;
        at = Some(child);
        bytes = Bytes::Node(store.node(child)?);
    }
    Err(Error::corrupt("extent tree deeper than its root says"))
}

/// As [`descend`], for changes: checks the whole leaf, since adjacent entries are used too.
fn descend_to_change<S: Nodes>(store: &S, block: u32) -> Result<Path<S::Node>> {
    let path = descend(store, block)?;
    let leaf = path.leaf();
    if leaf.at.is_some() || leaf.node()?.len() > 0 {
        store
            .check_entries(&leaf.bytes)
            .map_err(|e| in_block(e, leaf.at))?;
    }
    Ok(path)
}

/// Checks a node against the path that led to it.
fn check_bounds(
    node: Node<'_>,
    below: bool,
    depth: Option<u16>,
    lower: u64,
    upper: u64,
) -> Result<()> {
    if depth.is_some_and(|d| d != node.depth()) {
        return Err(Error::corrupt(format!(
            "extent node of depth {} in the wrong level",
            node.depth()
        )));
    }
    if node.len() == 0 {
        return if below || node.depth() > 0 {
            Err(Error::corrupt("empty extent node"))
        } else {
            Ok(())
        };
    }
    let last = node.len() - 1;
    let end = if node.depth() == 0 {
        node.extent(last).end()
    } else {
        u64::from(node.key(last)) + 1
    };
    if below && u64::from(node.key(0)) != lower || end > upper {
        return Err(Error::corrupt(format!(
            "extent node of the range {}..{end} where {lower}..{upper} belongs",
            node.key(0)
        )));
    }
    Ok(())
}

/// Looks up `block`: a run of at most `max` blocks (at least 1).
pub(crate) fn lookup<S: Nodes>(store: &S, block: u32, max: u32) -> Result<Mapping> {
    let path = descend(store, block)?;
    let leaf = path.leaf();
    let node = leaf.node()?;
    if leaf.pos > 0 {
        let extent = node.extent(leaf.pos - 1);
        if u64::from(block) < extent.end() {
            check_extent(store, &extent).map_err(|e| in_block(e, leaf.at))?;
            let part = clip(&extent, u64::from(block), u64::from(block) + u64::from(max));
            let kind = if part.unwritten {
                Kind::Unwritten(part.start)
            } else {
                Kind::Data(part.start)
            };
            return Ok(Mapping {
                kind,
                len_blocks: part.len,
            });
        }
    }
    let next = if leaf.pos < node.len() {
        u64::from(node.key(leaf.pos))
    } else {
        path.upper
    };
    let hole = next
        .saturating_sub(u64::from(block))
        .clamp(1, u64::from(max));
    Ok(Mapping {
        kind: Kind::Hole,
        len_blocks: hole as u32,
    })
}

/// The preferred volume block for file block `block`, so that it continues its neighbours. `None` if nothing
/// is mapped nearby.
pub(crate) fn goal<S: Nodes>(store: &S, block: u32) -> Result<Option<FsBlock>> {
    let path = descend(store, block)?;
    let leaf = path.leaf();
    let node = leaf.node()?;
    if leaf.pos > 0 {
        let before = node.extent(leaf.pos - 1);
        let gap = u64::from(block - before.block.0);
        return Ok(before.start.checked_add(gap));
    }
    if node.len() > 0 {
        let after = node.extent(0);
        return Ok(after
            .start
            .0
            .checked_sub(u64::from(after.block.0 - block))
            .map(FsBlock));
    }
    Ok(None)
}

/// Rejects an invalid extent.
fn check_extent<S: Nodes>(store: &S, extent: &Extent) -> Result<()> {
    if extent.len == 0 || extent.end() > END {
        return Err(Error::corrupt(format!(
            "extent of {} blocks at {}",
            extent.len, extent.block
        )));
    }
    store.check_run(extent.start, extent.len)
}
