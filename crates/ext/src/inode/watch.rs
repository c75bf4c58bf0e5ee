//! [`Watch`]: which inodes an operation changed, whether it succeeds or fails.

use std::sync::Arc;

use smallvec::SmallVec;
use throughline_extfmt::InodeNumber;

use super::Inode;

/// The inodes that an operation may change, each with the number of its edits before the operation.
///
/// An operation adds its inodes before it changes them. Afterwards [`Watch::changed`] lists those whose
/// attributes, names or extended attributes may have changed meanwhile, by this thread or another. An inode
/// that is not listed has not changed. Reads and writes of file data are not seen.
#[derive(Default)]
pub struct Watch {
    inodes: SmallVec<[(Arc<Inode>, u32); 4]>,
}

impl Watch {
    /// Watches nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an inode, if it was not added before.
    pub fn add(&mut self, inode: &Arc<Inode>) {
        if !self.inodes.iter().any(|(seen, _)| Arc::ptr_eq(seen, inode)) {
            self.inodes.push((Arc::clone(inode), inode.raw.edits()));
        }
    }

    /// The inodes that changed since they were added.
    pub fn changed(&self) -> impl Iterator<Item = InodeNumber> {
        let changed = |(inode, before): &&(Arc<Inode>, u32)| inode.raw.edits() != *before;
        self.inodes
            .iter()
            .filter(changed)
            .map(|(inode, _)| inode.ino)
    }
}
