//! Visits every extent and every node of a tree, and moves nodes out of the part of the volume that goes.

use throughline_extfmt::FsBlock;

use super::super::store::{Bytes, Nodes, NodesMut};
use super::super::survey::Piece;
use super::node::{self, MAX_DEPTH, Node};
use super::{END, check_bounds, check_extent, in_block};
use crate::error::{Error, Result};

/// What a node must be, by its parent.
struct Bounds {
    at: Option<FsBlock>,
    depth: Option<u16>,
    lower: u64,
    upper: u64,
}

/// Passes every extent and every node to `visit`, a node before what is below it.
pub(crate) fn walk<S: Nodes>(store: &S, visit: &mut dyn FnMut(Piece) -> Result<()>) -> Result<()> {
    let bounds = Bounds {
        at: None,
        depth: None,
        lower: 0,
        upper: END,
    };
    walk_below(store, &Bytes::Root(store.root()), &bounds, visit)
}

fn walk_below<S: Nodes>(
    store: &S,
    bytes: &Bytes<S::Node>,
    own: &Bounds,
    visit: &mut dyn FnMut(Piece) -> Result<()>,
) -> Result<()> {
    let located = |e: Error| in_block(e, own.at);
    let node = Node::new(bytes).map_err(located)?;
    check_bounds(node, own.at.is_some(), own.depth, own.lower, own.upper).map_err(located)?;
    if node.depth() > MAX_DEPTH {
        return Err(located(Error::corrupt("extent tree of too many levels")));
    }
    if node.depth() == 0 {
        if node.len() > 0 {
            store.check_entries(bytes).map_err(located)?;
        }
        for extent in (0..node.len()).map(|at| node.extent(at)) {
            check_extent(store, &extent).map_err(located)?;
            visit(Piece::Data(extent))?;
        }
        return Ok(());
    }
    for pos in 0..node.len() {
        let child = node.child(pos);
        let next = (pos + 1 < node.len()).then(|| u64::from(node.key(pos + 1)));
        let bounds = Bounds {
            at: Some(child),
            depth: Some(node.depth() - 1),
            lower: node.key(pos).into(),
            upper: next.unwrap_or(own.upper),
        };
        store.check_run(child, 1).map_err(located)?;
        visit(Piece::Node(child))?;
        walk_below(store, &Bytes::Node(store.node(child)?), &bounds, visit)?;
    }
    Ok(())
}

/// Moves nodes from `limit` on to other blocks, until `moved` has `most` of their new places. The
/// tree is valid after each.
///
/// # Errors
/// No space for a node: what was moved remains so.
pub(crate) fn move_nodes<S: NodesMut>(
    store: &mut S,
    (limit, most): (FsBlock, u32),
    moved: &mut Vec<FsBlock>,
) -> Result<()> {
    let root = Bytes::Root(store.root());
    move_below(store, (None, root), (limit, most), moved)
}

fn move_below<S: NodesMut>(
    store: &mut S,
    (at, bytes): (Option<FsBlock>, Bytes<S::Node>),
    (limit, most): (FsBlock, u32),
    moved: &mut Vec<FsBlock>,
) -> Result<()> {
    let node = Node::new(&bytes)?;
    let depth = node.depth();
    if depth == 0 {
        return Ok(());
    }
    let children: Vec<FsBlock> = (0..node.len()).map(|pos| node.child(pos)).collect();
    drop(bytes);
    for (pos, mut child) in children.into_iter().enumerate() {
        if moved.len() >= most as usize {
            return Ok(());
        }
        if child >= limit {
            let content = store.node(child)?;
            let place = store.create(|bytes| bytes.copy_from_slice(&content))?;
            drop(content);
            match at {
                Some(parent) => store.edit(parent, |bytes| node::set_child(bytes, pos, place))?,
                None => store.edit_root(|root| node::set_child(root, pos, place))?,
            }
            store.free(child)?;
            moved.push(place);
            child = place;
        }
        if depth > 1 {
            let below = Bytes::Node(store.node(child)?);
            move_below(store, (Some(child), below), (limit, most), moved)?;
        }
    }
    Ok(())
}
