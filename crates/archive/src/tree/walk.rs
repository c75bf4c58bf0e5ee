//! Walking a tree, sorted by the bytes of names.

use super::store::NONE;
use super::{NodeId, Tree};
use crate::meta::Kind;

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child<'a> {
    /// Its bytes.
    pub name: &'a [u8],
    /// What it names.
    pub node: NodeId,
}

impl Tree {
    /// The names of a directory, sorted by their bytes.
    pub fn children(&self, directory: NodeId) -> Vec<Child<'_>> {
        let node = self.store.node_of(directory);
        if node.kind() != Kind::Directory {
            return Vec::new();
        }
        let mut children = Vec::with_capacity(node.count as usize);
        let mut at = node.place as u32;
        while at != NONE {
            let name = &self.store.names[at as usize];
            children.push(Child {
                name: self.store.name_bytes(at),
                node: NodeId(name.node),
            });
            at = name.next;
        }
        children.sort_unstable_by(|a, b| a.name.cmp(b.name));
        children
    }

    /// Walks all names, a directory before what is in it. The root, which has no name, is left out.
    pub fn walk(&self) -> Walk<'_> {
        Walk {
            tree: self,
            levels: vec![(self.children(NodeId::ROOT).into_iter(), 0)],
            path: Vec::new(),
        }
    }

    /// Whether two trees have the same names, and nodes that are the same but for where contents are.
    pub fn same_shape(&self, other: &Tree) -> bool {
        let (mut a, mut b) = (self.walk(), other.walk());
        let mut pairs = std::collections::HashMap::new();
        let same = |x: NodeId, y: NodeId| {
            let (x, y) = (self.node(x), other.node(y));
            (x.mode(), x.size(), x.links(), x.target(), x.device())
                == (y.mode(), y.size(), y.links(), y.target(), y.device())
                && x.meta() == y.meta()
        };
        if !same(NodeId::ROOT, NodeId::ROOT) {
            return false;
        }
        loop {
            match (a.next(), b.next()) {
                (None, None) => return true,
                (Some(x), Some(y)) => {
                    let paired = *pairs.entry(x.node).or_insert(y.node) == y.node;
                    if x.path != y.path || !paired || !same(x.node, y.node) {
                        return false;
                    }
                }
                _ => return false,
            }
        }
    }
}

/// A walk through a tree; see [`Tree::walk`].
#[derive(Debug)]
pub struct Walk<'a> {
    tree: &'a Tree,
    /// Of every directory on the way: what is left of it, and the length of its path.
    levels: Vec<(std::vec::IntoIter<Child<'a>>, usize)>,
    path: Vec<u8>,
}

/// A name met on a walk.
#[derive(Clone, Copy, Debug)]
pub struct Step<'w> {
    /// From the start of the walk, without a slash at its start.
    pub path: &'w [u8],
    /// The last component.
    pub name: &'w [u8],
    /// What it names.
    pub node: NodeId,
    /// Directories above it, the start of the walk counted: at least 1.
    pub depth: usize,
}

impl<'a> Walk<'a> {
    /// The next name. Not an iterator: the path is that of the walk, and lives until the next call.
    #[expect(clippy::should_implement_trait, reason = "it lends the walk's path")]
    pub fn next(&mut self) -> Option<Step<'_>> {
        let (child, depth) = loop {
            let (left, length) = self.levels.last_mut()?;
            self.path.truncate(*length);
            if let Some(child) = left.next() {
                break (child, self.levels.len());
            }
            self.levels.pop();
        };
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(child.name);
        if self.tree.store.node_of(child.node).kind() == Kind::Directory {
            let children = self.tree.children(child.node).into_iter();
            self.levels.push((children, self.path.len()));
        }
        Some(Step {
            path: &self.path,
            name: child.name,
            node: child.node,
            depth,
        })
    }

    /// Leaves out what is below the directory that was met last.
    pub fn skip_below(&mut self) {
        if self.levels.len() > 1
            && self
                .levels
                .last()
                .is_some_and(|(_, length)| *length == self.path.len())
        {
            self.levels.pop();
        }
    }
}
