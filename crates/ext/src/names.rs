//! [`Names`], the directory tree of a volume: directories, paths, and the operations on names.
//!
//! Invariants:
//! - An inode's link count and its names change in the same transaction.
//! - Only one rename at a time moves a directory or touches two directories, so no directory becomes its own
//!   ancestor.

use std::ops::Deref;

use throughline_extfmt::Superblock;
use throughline_locks::{Mutex, MutexGuard, Rank};

use crate::attrs::Attrs;
use crate::dir::hash::HashRules;

/// The tree of a volume: the layer above [`Attrs`].
pub struct Names {
    rename: Mutex<()>,
    pub(crate) hash_rules: HashRules,
    attrs: Attrs,
}

impl Deref for Names {
    type Target = Attrs;

    fn deref(&self) -> &Attrs {
        &self.attrs
    }
}

impl Names {
    pub(crate) fn new(attrs: Attrs, sb: &Superblock) -> Self {
        Self {
            rename: Mutex::ranked(Rank::Rename, ()),
            hash_rules: HashRules::new(sb),
            attrs,
        }
    }

    /// The lock that a rename takes when it moves a directory or touches two of them: one such rename at a
    /// time.
    pub(crate) fn lock_rename(&self) -> MutexGuard<'_, ()> {
        self.rename.lock()
    }
}
