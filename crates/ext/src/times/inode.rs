//! What is known about the times of an inode in memory.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// What an inode knows of its times.
#[derive(Default)]
pub(crate) struct OfInode {
    /// Until then reading leaves the access time alone, in nanoseconds since 1970; 0 after each change of the inode.
    pub(super) settled_until_ns: AtomicI64,
    /// They are in memory only.
    pub(super) kept: AtomicBool,
}

impl OfInode {
    /// The image is being stored, its times with it.
    pub(crate) fn stored(&self) {
        if self.settled_until_ns.load(Ordering::Relaxed) != 0 {
            self.settled_until_ns.store(0, Ordering::Relaxed);
        }
        if self.kept.load(Ordering::Relaxed) {
            self.kept.store(false, Ordering::Relaxed);
        }
    }
}
