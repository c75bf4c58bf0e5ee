//! In-memory state of an inode's times.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// In-memory state of an inode's times.
#[derive(Default)]
pub(crate) struct OfInode {
    /// Reads leave the access time alone until then, in nanoseconds since 1970; 0 after each change of the
    /// inode.
    pub(super) next_due_ns: AtomicI64,
    /// The times are only in memory.
    pub(super) kept: AtomicBool,
}

impl OfInode {
    /// Call when the image, including its times, is stored.
    pub(crate) fn stored(&self) {
        if self.next_due_ns.load(Ordering::Relaxed) != 0 {
            self.next_due_ns.store(0, Ordering::Relaxed);
        }
        if self.kept.load(Ordering::Relaxed) {
            self.kept.store(false, Ordering::Relaxed);
        }
    }
}
