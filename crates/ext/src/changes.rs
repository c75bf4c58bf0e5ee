//! Which transactions an inode's last changes are in: what `fsync` and `fdatasync` have to wait for.
//!
//! Invariants:
//! - Every transaction that changed anything of the inode (its image, its mapping, its names) is `all` or an earlier one;
//!   every one that reading its data back needs (all but times, owner and mode) is `data` or an earlier one.
//! - Of an inode that just came from the disk nothing is known: its last change may be in the transaction that was running
//!   then, but in none after.

use std::sync::atomic::{AtomicU32, Ordering};

use throughline_journal::Tid;

/// See the head of this file. Changed under the lock of the inode's image.
pub(crate) struct Changes {
    all: AtomicU32,
    data: AtomicU32,
}

impl Changes {
    /// Of an inode that comes into memory while `running` is the running transaction.
    pub(crate) fn unknown(running: Tid) -> Self {
        Self {
            all: AtomicU32::new(running.0),
            data: AtomicU32::new(running.0),
        }
    }

    /// Something of it that reading the data back may need changed in `tid`.
    pub(crate) fn note(&self, tid: Tid) {
        raise(&self.data, tid);
        raise(&self.all, tid);
    }

    /// Only times, owner or mode changed in `tid`.
    pub(crate) fn note_attributes(&self, tid: Tid) {
        raise(&self.all, tid);
    }

    /// What a sync has to wait for; with `data_only`, attributes may get lost.
    pub(crate) fn last(&self, data_only: bool) -> Tid {
        let tid = if data_only { &self.data } else { &self.all };
        Tid(tid.load(Ordering::Acquire))
    }
}

fn raise(last: &AtomicU32, tid: Tid) {
    if tid.is_after(Tid(last.load(Ordering::Relaxed))) {
        last.store(tid.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
