//! Storage of mapping nodes: the interface between the tree algorithms and the volume.
//!
//! The algorithms of [`super::extents`] and [`super::indirect`] work on a root of 60 bytes (`i_block`) and
//! numbered nodes below it. On a volume the nodes are metadata blocks changed inside a handle
//! ([`super::tree`]); in tests they are a map in memory that can run out of blocks on demand.

use std::ops::Deref;

use throughline_extfmt::FsBlock;

use crate::error::Result;

/// Size of `i_block` in bytes.
pub(crate) const ROOT_BYTES: usize = 60;

/// The root of a mapping.
pub(crate) type Root = [u8; ROOT_BYTES];

/// Limits of one step that unmaps blocks; both at least 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Number of runs.
    pub(crate) runs: usize,
    /// Total blocks in them.
    pub(crate) blocks: u32,
}

impl Budget {
    /// No limit.
    #[cfg(test)]
    pub(crate) const ALL: Self = Self {
        runs: usize::MAX,
        blocks: u32::MAX,
    };

    pub(super) fn is_spent(&self) -> bool {
        self.runs == 0 || self.blocks == 0
    }

    /// Subtracts a run, which may be longer than the rest.
    pub(super) fn spend(&mut self, blocks: u32) {
        self.runs = self.runs.saturating_sub(1);
        self.blocks = self.blocks.saturating_sub(blocks);
    }
}

/// Read access to a mapping.
pub(crate) trait Nodes {
    /// A snapshot of a node's bytes; later edits do not change it.
    type Node: Deref<Target = [u8]>;

    /// Reads `i_block`.
    fn root(&self) -> Root;

    /// Reads a node and verifies its checksum if the volume has checksums.
    fn node(&self, block: FsBlock) -> Result<Self::Node>;

    /// Checks the order, lengths and ranges of all entries of an extent node.
    fn check_entries(&self, node: &[u8]) -> Result<()>;

    /// Fails if data cannot be in these blocks: outside the volume, or on its fixed metadata.
    fn check_run(&self, block: FsBlock, len: u32) -> Result<()>;
}

/// Write access to a mapping. A node is read before it is edited, so an edit fails only if the journal does.
pub(crate) trait NodesMut: Nodes {
    /// Changes the root.
    fn edit_root(&mut self, edit: impl FnOnce(&mut Root)) -> Result<()>;

    /// Changes a node and updates its checksum.
    fn edit(&mut self, block: FsBlock, edit: impl FnOnce(&mut [u8])) -> Result<()>;

    /// Allocates a zeroed node and fills it.
    ///
    /// # Errors
    /// No space; nothing has changed then.
    fn create(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<FsBlock>;

    /// Frees an unreferenced node.
    fn free(&mut self, block: FsBlock) -> Result<()>;
}

/// A root or a node, for code that handles both.
pub(super) enum Bytes<N> {
    /// The root, copied.
    Root(Root),
    /// A node.
    Node(N),
}

impl<N: Deref<Target = [u8]>> Deref for Bytes<N> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Root(root) => root,
            Self::Node(node) => node,
        }
    }
}
