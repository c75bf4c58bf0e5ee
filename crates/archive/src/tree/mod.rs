//! The merged result of all sources, in memory.
//!
//! A node has one or more names (hard links); a directory has one. Nodes, names and attribute sets are kept
//! in tables and refer to each other by index. So a node costs 72 bytes and each name 24 bytes, its own
//! length, 1 byte, and 5 to 10 bytes in the hash table of names: a tree of 1,000,000 files with names of 16
//! bytes takes about 125 MB. A file without holes needs nothing more; every extent of another costs 24
//! bytes, and access and change times 48 bytes. Equal sets of attributes are stored once.
//!
//! Invariants:
//! - Node 0 is the root, a directory without a name. It cannot be removed.
//! - Every other node is reached by `links` names; a directory by one. There are no cycles, because a
//!   directory is never linked.
//! - No name is empty, `.` or `..`, has a `/` or a NUL, or is longer than [`NAME_MAX`](crate::NAME_MAX).
//! - Whatever is iterated is sorted by the bytes of names, so it does not depend on the order of insertion.

mod base;
mod build;
mod layer;
mod resolve;
mod store;
mod view;
mod walk;
mod xattrs;

pub use view::NodeRef;
pub use walk::{Child, Step, Walk};

use crate::limits::Limits;
use store::{Node, Store};

/// A node of a [`Tree`]. Numbers of removed nodes are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    /// The root directory.
    pub const ROOT: NodeId = NodeId(0);

    /// The node's position in tables by node: below [`Tree::id_bound`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A tree of files: see the module's head. Made by merging sources, or by hand:
///
/// ```
/// use throughline_archive::{Limits, Memory, Meta, Sources, Tree};
/// # fn main() -> throughline_archive::Result<()> {
/// let mut sources = Sources::new();
/// let mut memory = Memory::new();
/// let hello = memory.add(b"hello\n");
/// let id = sources.add(Box::new(memory));
/// let mut tree = Tree::new(Limits::default());
/// tree.mkdir(b"etc", &Meta::new(0o755))?;
/// tree.add_file(b"etc/motd", &Meta::new(0o644), &hello.of(id))?;
/// tree.symlink(b"motd", b"etc/motd", &Meta::new(0o777))?;
/// assert_eq!(tree.len(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tree {
    store: Store,
}

impl Tree {
    /// An empty tree: a root directory with mode 0755, owned by root, of the start of 1970.
    pub fn new(limits: Limits) -> Tree {
        Tree {
            store: Store::new(limits),
        }
    }

    /// How many nodes there are, with the root.
    pub fn len(&self) -> usize {
        self.store.live_nodes
    }

    /// Whether there is nothing but the root.
    pub fn is_empty(&self) -> bool {
        self.store.live_nodes == 1
    }

    /// How many names there are; more than nodes where there are hard links.
    pub fn name_count(&self) -> usize {
        self.store.live_names
    }

    /// Every node's index is below this.
    pub fn id_bound(&self) -> usize {
        self.store.nodes.len()
    }

    /// Bytes of data of all files, holes not counted.
    pub fn data_bytes(&self) -> u64 {
        self.store.data_bytes
    }

    /// Every node, in the order of their numbers.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        let live = |(_, node): &(usize, &Node)| !node.is_free();
        self.store
            .nodes
            .iter()
            .enumerate()
            .filter(live)
            .map(|(index, _)| NodeId(index as u32))
    }
}
