//! The order of a tree: which inode numbers its nodes get, and what follows from the tree alone.
//!
//! The names of a directory get consecutive numbers, in the order of their bytes; then its directories are
//! walked one after the other. So inodes that are read together are together, and the order does not depend
//! on how the source lists its names.

use sha2::{Digest, Sha256};

use super::tree::{Input, Kind, NodeId, ROOT};
use crate::error::{Error, Result};

/// The directory that e2fsck puts files without names in; it has a fixed inode.
pub(super) const LOST_AND_FOUND: &[u8] = b"lost+found";
const NO_PLACE: u32 = u32::MAX;

/// A tree in order.
pub(crate) struct Walk<'t> {
    pub(crate) tree: Input<'t>,
    /// The nodes in the order of their inodes, without those of fixed numbers.
    pub(crate) order: Vec<NodeId>,
    /// By node: its place in `order`.
    place: Vec<u32>,
    /// By node: names that lead to it; of a directory, its subdirectories and 2.
    links: Vec<u32>,
    /// By node: the directory that holds its first name.
    parent: Vec<NodeId>,
    /// The tree's own `/lost+found`.
    pub(crate) lost_and_found: Option<NodeId>,
    /// A node has extended attributes.
    pub(crate) has_xattrs: bool,
    /// The newest time of a node, in seconds since 1970; not below 0.
    pub(crate) newest: u64,
    /// Of all but the bytes of the files.
    pub(crate) digest: [u8; 32],
    /// Bytes of all files.
    pub(crate) bytes: u64,
    /// Bytes of the largest file.
    pub(crate) largest: u64,
    /// Bytes of the longest path that a link leads to.
    pub(crate) longest_target: usize,
}

impl<'t> Walk<'t> {
    /// Walks a tree.
    ///
    /// # Errors
    /// A lost+found that is no directory: the source's fault.
    pub(crate) fn new(tree: Input<'t>) -> Result<Walk<'t>> {
        let nodes = tree.id_bound();
        let mut walk = Walk {
            tree,
            order: Vec::with_capacity(nodes),
            place: vec![NO_PLACE; nodes],
            links: vec![0; nodes],
            parent: vec![ROOT; nodes],
            lost_and_found: None,
            has_xattrs: false,
            newest: 0,
            digest: [0; 32],
            bytes: 0,
            largest: 0,
            longest_target: 0,
        };
        let mut digest = Sha256::new();
        walk.links[ROOT.index()] = 2;
        walk.visit(ROOT, &mut digest);
        let mut stack = vec![ROOT];
        while let Some(directory) = stack.pop() {
            let from = stack.len();
            for entry in tree.entries(directory) {
                if directory == ROOT
                    && entry.name == LOST_AND_FOUND
                    && tree.tree.node(entry.node).is_usual_lost_and_found()
                {
                    // The volume has its own.
                    continue;
                }
                digest.update((entry.name.len() as u64).to_le_bytes());
                digest.update(entry.name);
                if walk.enter(directory, entry.name, entry.node, &mut digest)? {
                    stack.push(entry.node);
                }
            }
            digest.update([0; 8]);
            stack[from..].reverse();
        }
        walk.digest = digest.finalize().into();
        Ok(walk)
    }

    /// Takes a name into account. Whether it is a directory that is to be walked.
    fn enter(
        &mut self,
        directory: NodeId,
        name: &[u8],
        node: NodeId,
        digest: &mut Sha256,
    ) -> Result<bool> {
        let at = node.index();
        let is_directory = self.tree.is_directory(node);
        if is_directory {
            self.links[at] = 2;
            self.links[directory.index()] += 1;
        } else {
            self.links[at] += 1;
        }
        if directory == ROOT && name == LOST_AND_FOUND {
            if !is_directory {
                return Err(self.refused(ROOT, "has a lost+found that is no directory"));
            }
            self.lost_and_found = Some(node);
        } else if self.place[at] == NO_PLACE {
            self.place[at] = self.order.len() as u32;
            self.order.push(node);
        } else {
            digest.update(self.place[at].to_le_bytes());
            return Ok(false);
        }
        self.parent[at] = directory;
        self.visit(node, digest);
        Ok(is_directory)
    }

    /// Takes a node into account, the first time.
    fn visit(&mut self, node: NodeId, digest: &mut Sha256) {
        let tree = self.tree;
        let attributes = tree.attributes(node);
        self.newest = self
            .newest
            .max(u64::try_from(attributes.mtime_seconds).unwrap_or(0));
        digest.update(attributes.permissions.to_le_bytes());
        digest.update(attributes.uid.to_le_bytes());
        digest.update(attributes.gid.to_le_bytes());
        digest.update(attributes.mtime_seconds.to_le_bytes());
        digest.update(attributes.mtime_nanoseconds.to_le_bytes());
        match tree.kind(node) {
            Kind::File { size } => {
                self.bytes = self.bytes.saturating_add(size);
                self.largest = self.largest.max(size);
                digest.update(b"file");
                digest.update(size.to_le_bytes());
                for data in tree.data(node) {
                    digest.update(data.start.to_le_bytes());
                    digest.update(data.end.to_le_bytes());
                }
            }
            Kind::Symlink { target } => {
                self.longest_target = self.longest_target.max(target.len());
                digest.update(b"link");
                digest.update((target.len() as u64).to_le_bytes());
                digest.update(target);
            }
            kind => digest.update(format!("{kind:?}")),
        }
        for part in tree.xattrs(node).flat_map(|(name, value)| [name, value]) {
            self.has_xattrs = true;
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
    }

    /// The node's place in [`Walk::order`]; `None`: it has a fixed number, or no name.
    pub(crate) fn place(&self, node: NodeId) -> Option<u32> {
        Some(self.place[node.index()]).filter(|place| *place != NO_PLACE)
    }

    /// Names that lead to a node, of a directory those that its inode counts.
    pub(crate) fn links(&self, node: NodeId) -> u32 {
        self.links[node.index()]
    }

    /// The directory of a node.
    pub(crate) fn parent(&self, node: NodeId) -> NodeId {
        self.parent[node.index()]
    }

    /// All nodes with names, the root first.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let fixed = std::iter::once(ROOT).chain(self.lost_and_found);
        fixed.chain(self.order.iter().copied())
    }

    /// The path of a node in the image.
    pub(crate) fn path(&self, node: NodeId) -> String {
        let mut names = Vec::new();
        let mut at = node;
        while at != ROOT && names.len() < self.parent.len() {
            let directory = self.parent(at);
            let entries = self.tree.entries(directory);
            let name = entries
                .iter()
                .find(|entry| entry.node == at)
                .map_or(&b"?"[..], |entry| entry.name);
            names.push(String::from_utf8_lossy(name).into_owned());
            at = directory;
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }

    /// What is wrong with a node.
    pub(crate) fn refused(&self, node: NodeId, why: &str) -> Error {
        Error::invalid(format!("{}: {why}", self.path(node)))
    }
}
