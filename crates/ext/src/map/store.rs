//! Where the nodes of a mapping live: the seam between the tree algorithms and the volume.
//!
//! The algorithms of [`super::extents`] and [`super::indirect`] know a root of 60 bytes (`i_block`) and numbered nodes
//! below it. On a volume the nodes are metadata blocks changed inside a handle ([`super::tree`]); in tests they are a map
//! in memory that can be told to run out of blocks.

use std::ops::Deref;

use throughline_extfmt::FsBlock;

use crate::error::Result;

/// Bytes of `i_block`.
pub(crate) const ROOT_BYTES: usize = 60;

/// The root of a mapping.
pub(crate) type Root = [u8; ROOT_BYTES];

/// How much a step that takes mappings out may do: both at least 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Runs of blocks.
    pub(crate) runs: usize,
    /// Blocks in them.
    pub(crate) blocks: u32,
}

impl Budget {
    /// Whatever there is.
    #[cfg(test)]
    pub(crate) const ALL: Self = Self {
        runs: usize::MAX,
        blocks: u32::MAX,
    };

    pub(super) fn is_spent(&self) -> bool {
        self.runs == 0 || self.blocks == 0
    }

    /// Takes a run off; it may be longer than what is left.
    pub(super) fn spend(&mut self, blocks: u32) {
        self.runs = self.runs.saturating_sub(1);
        self.blocks = self.blocks.saturating_sub(blocks);
    }
}

/// Reading a mapping.
pub(crate) trait Nodes {
    /// A node's bytes as they are now: a snapshot that later edits do not change.
    type Node: Deref<Target = [u8]>;

    /// The bytes of `i_block`.
    fn root(&self) -> Root;

    /// A node, its checksum verified where the volume has one.
    fn node(&self, block: FsBlock) -> Result<Self::Node>;

    /// Checks all entries of an extent node: their order, lengths and ranges.
    fn check_entries(&self, node: &[u8]) -> Result<()>;

    /// Refuses a run of blocks that data cannot be in: outside the volume, or on its fixed metadata.
    fn check_run(&self, block: FsBlock, len: u32) -> Result<()>;
}

/// Changing a mapping. A node that is edited was read before, so an edit fails only where the journal does.
pub(crate) trait NodesMut: Nodes {
    /// Changes the root.
    fn edit_root(&mut self, edit: impl FnOnce(&mut Root)) -> Result<()>;

    /// Changes a node and renews its checksum.
    fn edit(&mut self, block: FsBlock, edit: impl FnOnce(&mut [u8])) -> Result<()>;

    /// Allocates a node, zeroed, and fills it.
    ///
    /// # Errors
    /// No space; nothing has changed then.
    fn create(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<FsBlock>;

    /// Frees a node that nothing points to any more.
    fn free(&mut self, block: FsBlock) -> Result<()>;
}

/// A root or a node, for code that treats them alike.
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
