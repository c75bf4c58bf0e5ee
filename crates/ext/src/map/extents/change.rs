//! The primitive for tree changes: replaces adjacent entries of a leaf by others.

use std::ops::Deref;

use smallvec::SmallVec;
use throughline_extfmt::FsBlock;

use super::super::store::{Nodes, NodesMut};
use super::node::{self, Extent, MAX_DEPTH, Node, clip, joins};
use super::{END, Path, Step, check_extent, descend, descend_to_change, in_block};
use crate::error::{Error, Reason, Result};

/// Descents until there is room: a split at every level and one growth, for two entries, with a margin.
const MAX_DESCENTS: usize = 4 * (MAX_DEPTH as usize + 1);

/// Replaces the leaf entries `from..to` by `new`.
pub(super) struct Plan {
    pub from: usize,
    pub to: usize,
    pub new: SmallVec<[Extent; 5]>,
}

/// Maps the hole at `extent`, merging it with its neighbours if they are contiguous.
///
/// # Errors
/// `Corrupt` if something is mapped there already (the caller has checked); no space for a node. Nothing has
/// changed then.
pub(crate) fn insert<S: NodesMut>(store: &mut S, extent: Extent) -> Result<()> {
    check_extent(store, &extent)?;
    change(store, extent.block.0, |_, leaf, pos, upper| {
        let (before, after) = neighbours(leaf, pos, pos);
        let next = after.map_or(upper, |e| u64::from(e.block.0));
        if before.is_some_and(|e| e.end() > u64::from(extent.block.0)) || next < extent.end() {
            return Err(Error::corrupt(format!(
                "blocks {}..{} are mapped already",
                extent.block,
                extent.end()
            )));
        }
        Ok(Some(joined(pos, pos, before, &[extent], after)))
    })?;
    Ok(())
}

/// Marks the mapped blocks in `from..to` as unwritten or written; holes stay. Changes at most `most` extents.
/// Returns where to continue; `None` when done.
pub(crate) fn set_unwritten<S: NodesMut>(
    store: &mut S,
    from: u64,
    to: u64,
    unwritten: bool,
    most: usize,
) -> Result<Option<u64>> {
    let mut from = from;
    for _ in 0..most {
        let found = extent_at_or_after(store, from)?;
        let Some(extent) = found.filter(|e| from < to && u64::from(e.block.0) < to) else {
            return Ok(None);
        };
        let part = clip(&extent, from, to);
        if extent.unwritten != unwritten {
            replace(store, extent, part, Extent { unwritten, ..part })?;
        }
        from = part.end();
        if from >= to {
            return Ok(None);
        }
    }
    Ok(Some(from))
}

/// Splits the extent that crosses `block`, if any.
pub(crate) fn split_at<S: NodesMut>(store: &mut S, block: u32) -> Result<()> {
    change(store, block, |_, leaf, pos, _| {
        if pos == 0 {
            return Ok(None);
        }
        let extent = leaf.extent(pos - 1);
        if extent.block.0 == block || extent.end() <= u64::from(block) {
            return Ok(None);
        }
        let (left, right) = (
            clip(&extent, 0, block.into()),
            clip(&extent, block.into(), END),
        );
        Ok(Some(Plan {
            from: pos - 1,
            to: pos,
            new: SmallVec::from_slice(&[left, right]),
        }))
    })?;
    Ok(())
}

/// Merges the two extents that meet at `block`, if possible.
pub(super) fn join_at<S: NodesMut>(store: &mut S, block: u32) -> Result<()> {
    change(store, block, |_, leaf, pos, _| {
        if pos < 2 || leaf.extent(pos - 1).block.0 != block {
            return Ok(None);
        }
        let (left, right) = (leaf.extent(pos - 2), leaf.extent(pos - 1));
        if !joins(&left, &right) {
            return Ok(None);
        }
        Ok(Some(joined(pos - 1, pos, Some(left), &[right], None)))
    })?;
    Ok(())
}

/// Replaces the blocks of `old` by the run that starts at `with`.
///
/// # Errors
/// `Corrupt` if `old` is not mapped like that (the caller has checked); no space for a node. Nothing has
/// changed then.
pub(crate) fn replace_run<S: NodesMut>(store: &mut S, old: &Extent, with: FsBlock) -> Result<()> {
    let first = u64::from(old.block.0);
    let holds = |e: &Extent| e.block <= old.block && old.end() <= e.end();
    let found = extent_at_or_after(store, first)?.filter(holds);
    let Some(whole) = found.filter(|e| clip(e, first, old.end()) == *old) else {
        return Err(Error::corrupt(format!("other data at block {first}")));
    };
    let new = Extent {
        start: with,
        ..*old
    };
    check_extent(store, &new)?;
    replace(store, whole, *old, new)
}

/// The extent that contains `block`.
pub(crate) fn extent_at<S: Nodes>(store: &S, block: u32) -> Result<Option<Extent>> {
    let found = extent_at_or_after(store, block.into())?;
    Ok(found.filter(|e| e.block.0 <= block))
}

/// Whether all extents are in the root, which has no room for `more` others.
pub(crate) fn is_tight<S: Nodes>(store: &S, more: usize) -> Result<bool> {
    let root = store.root();
    let node = Node::new(&root)?;
    Ok(node.depth() == 0 && node.len() + more > node.max())
}

/// Replaces a part of an extent by `new`, merging it with its neighbours.
fn replace<S: NodesMut>(store: &mut S, whole: Extent, part: Extent, new: Extent) -> Result<()> {
    change(store, part.block.0, |_, leaf, pos, _| {
        if pos == 0 || leaf.extent(pos - 1) != whole {
            return Err(Error::corrupt("extent tree changes as it is read"));
        }
        let mut middle: SmallVec<[Extent; 3]> = SmallVec::new();
        if whole.block < part.block {
            middle.push(clip(&whole, 0, part.block.0.into()));
        }
        middle.push(new);
        if part.end() < whole.end() {
            middle.push(clip(&whole, part.end(), END));
        }
        let (before, after) = neighbours(leaf, pos - 1, pos);
        Ok(Some(joined(pos - 1, pos, before, &middle, after)))
    })?;
    Ok(())
}

/// The first extent that ends after `block`.
fn extent_at_or_after<S: Nodes>(store: &S, block: u64) -> Result<Option<Extent>> {
    let mut block = block;
    // At most two leaves: no leaf below an index node is empty.
    for _ in 0..2 {
        if block >= END {
            return Ok(None);
        }
        let path = descend(store, block as u32)?;
        let leaf = path.leaf();
        let node = leaf.node()?;
        for at in leaf.pos.saturating_sub(1)..node.len().min(leaf.pos + 1) {
            let extent = node.extent(at);
            if extent.end() > block {
                check_extent(store, &extent).map_err(|e| in_block(e, leaf.at))?;
                return Ok(Some(extent));
            }
        }
        block = path.upper;
    }
    if block >= END {
        Ok(None)
    } else {
        Err(Error::corrupt("empty extent node"))
    }
}

fn neighbours(leaf: Node<'_>, from: usize, to: usize) -> (Option<Extent>, Option<Extent>) {
    let before = from.checked_sub(1).map(|at| leaf.extent(at));
    let after = (to < leaf.len()).then(|| leaf.extent(to));
    (before, after)
}

/// A plan that replaces `from..to` by `middle`, merged with its neighbours.
fn joined(
    from: usize,
    to: usize,
    before: Option<Extent>,
    middle: &[Extent],
    after: Option<Extent>,
) -> Plan {
    let mut plan = Plan {
        from,
        to,
        new: SmallVec::new(),
    };
    for extent in before.iter().chain(middle).chain(after.iter()) {
        match plan.new.last_mut() {
            Some(last) if joins(last, extent) => last.len += extent.len,
            _ => plan.new.push(*extent),
        }
    }
    // Unchanged neighbours need not be rewritten.
    if before.is_some() && plan.new.first() == before.as_ref() {
        plan.new.remove(0);
    } else if before.is_some() {
        plan.from -= 1;
    }
    if after.is_some() && plan.new.last() == after.as_ref() {
        plan.new.pop();
    } else if after.is_some() {
        plan.to += 1;
    }
    plan
}

/// Descends to the leaf of `block`, asks `plan` what to replace there (given the store, the leaf, the block's
/// insertion point and the leaf's upper bound), makes room, and applies it. Returns whether there was
/// anything to do.
pub(super) fn change<S: NodesMut>(
    store: &mut S,
    block: u32,
    mut plan: impl FnMut(&S, Node<'_>, usize, u64) -> Result<Option<Plan>>,
) -> Result<bool> {
    for _ in 0..MAX_DESCENTS {
        let path = descend_to_change(store, block)?;
        let leaf = path.leaf();
        let node = leaf.node()?;
        let Some(plan) = plan(store, node, leaf.pos, path.upper)? else {
            return Ok(false);
        };
        if node.len() - (plan.to - plan.from) + plan.new.len() <= node.max() {
            apply(store, &path, &plan)?;
            return Ok(true);
        }
        make_room(store, &path)?;
    }
    Err(Error::corrupt("extent nodes too small to split"))
}

/// Applies a plan to the leaf of `path`, which has the room.
pub(super) fn apply<S: NodesMut>(store: &mut S, path: &Path<S::Node>, plan: &Plan) -> Result<()> {
    let leaf = path.leaf();
    let node = leaf.node()?;
    let left = node.len() - (plan.to - plan.from) + plan.new.len();
    if left == 0 && leaf.at.is_some() {
        return drop_leaf(store, path);
    }
    edit(store, leaf, |bytes| {
        node::splice(bytes, plan.from, plan.to, &plan.new)
    })?;
    if plan.from == 0 && left > 0 {
        let first = plan
            .new
            .first()
            .map_or_else(|| node.key(plan.to), |e| e.block.0);
        set_keys(store, path, path.steps.len() - 1, first)?;
    }
    Ok(())
}

/// Changes the node of a step.
pub(super) fn edit<S: NodesMut>(
    store: &mut S,
    step: &Step<S::Node>,
    change: impl FnOnce(&mut [u8]),
) -> Result<()> {
    match step.at {
        Some(block) => store.edit(block, change),
        None => store.edit_root(|root| change(root)),
    }
}

/// Updates the parents after the first key of the node at `level` changed to `key`.
pub(super) fn set_keys<S: NodesMut>(
    store: &mut S,
    path: &Path<S::Node>,
    level: usize,
    key: u32,
) -> Result<()> {
    for step in path.steps[..level].iter().rev() {
        if step.node()?.key(step.pos) == key {
            break;
        }
        edit(store, step, |bytes| node::set_key(bytes, step.pos, key))?;
        if step.pos > 0 {
            break;
        }
    }
    Ok(())
}

/// Removes the leaf of `path` from the tree, and the index nodes that become empty.
fn drop_leaf<S: NodesMut>(store: &mut S, path: &Path<S::Node>) -> Result<()> {
    for (level, step) in path.steps.iter().enumerate().rev() {
        let node = step.node()?;
        let is_leaf = level + 1 == path.steps.len();
        match step.at {
            Some(block) if is_leaf || node.len() == 1 => store.free(block)?,
            None if node.len() == 1 => return store.edit_root(|root| node::fill(root, 0, None)),
            _ => {
                edit(store, step, |bytes| {
                    node::remove(bytes, step.pos, step.pos + 1)
                })?;
                return if step.pos == 0 {
                    set_keys(store, path, level, node.key(1))
                } else {
                    Ok(())
                };
            }
        }
    }
    Ok(())
}

/// Splits the leaf of `path`, or the lowest full index node that prevents that; if all are full, grows the
/// tree by a level. The path is invalid afterwards.
fn make_room<S: NodesMut>(store: &mut S, path: &Path<S::Node>) -> Result<()> {
    // The leaf always needs room, an index node only if it is full.
    let mut level = path.steps.len() - 1;
    while level > 0 {
        let parent = path.steps[level - 1].node()?;
        if parent.len() < parent.max() {
            return split(store, path, level);
        }
        level -= 1;
    }
    grow(store, &path.steps[0])
}

/// Splits the node at `level` (not the root); its parent has room.
fn split<S: NodesMut>(store: &mut S, path: &Path<S::Node>, level: usize) -> Result<()> {
    let step = &path.steps[level];
    let node = step.node()?;
    if node.len() < 2 {
        return Err(in_block(
            Error::corrupt("extent node with room for one entry"),
            step.at,
        ));
    }
    // At the end of the tree, where files grow, the left node stays full. Elsewhere it is halved, so that no
    // order of inserts splits more often than [`super::nodes_needed`] allows for.
    let at_end = path.upper == END && step.pos + usize::from(node.depth() > 0) >= node.len();
    let cut = if at_end {
        node.len() - 1
    } else {
        node.len() / 2
    };
    let right = store.create(|bytes| node::fill(bytes, node.depth(), Some((node, cut))))?;
    let parent = &path.steps[level - 1];
    edit(store, parent, |bytes| {
        node::insert_child(bytes, parent.pos + 1, node.key(cut), right)
    })?;
    edit(store, step, |bytes| node::remove(bytes, cut, node.len()))
}

/// Moves the root's entries into a new node below it.
fn grow<S: NodesMut>(store: &mut S, root: &Step<S::Node>) -> Result<()> {
    let node = root.node()?;
    if node.depth() == MAX_DEPTH {
        return Err(Reason::TooLarge.into());
    }
    let child: FsBlock = store.create(|bytes| node::fill(bytes, node.depth(), Some((node, 0))))?;
    store.edit_root(|bytes| {
        node::fill(bytes, node.depth() + 1, None);
        node::insert_child(bytes, 0, node.key(0), child);
    })
}

/// While the root has a single child whose entries fit in the root, moves them there.
pub(super) fn shrink<S: NodesMut>(store: &mut S) -> Result<()> {
    for _ in 0..MAX_DEPTH {
        let root = store.root();
        let top = Node::new(&root)?;
        if top.depth() == 0 || top.len() != 1 {
            return Ok(());
        }
        let block = top.child(0);
        store.check_run(block, 1)?;
        let bytes = store.node(block)?;
        let child = Node::new(bytes.deref()).map_err(|e| e.in_block(block))?;
        if child.depth() + 1 != top.depth() || child.len() > top.max() {
            return Ok(());
        }
        store.edit_root(|bytes| node::fill(bytes, child.depth(), Some((child, 0))))?;
        store.free(block)?;
    }
    Ok(())
}
