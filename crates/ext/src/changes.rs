//! Which transactions hold an inode's last changes: what `fsync` and `fdatasync` must wait for.
//!
//! Invariants:
//! - `all` is the last transaction that changed the inode (its image, mapping or names). `data` is the last
//!   one that must be durable before its data can be read back: times, owner and mode do not count.
//! - Nothing is known of an inode just loaded from disk: its last change may be in the transaction that was
//!   running then, but not in a later one.

use std::sync::atomic::{AtomicU32, Ordering};

use throughline_journal::Tid;

/// See the head of this file. Changed under the lock of the inode's image.
pub(crate) struct Changes {
    all: AtomicU32,
    data: AtomicU32,
}

impl Changes {
    /// For an inode loaded while transaction `running` is running.
    pub(crate) fn unknown(running: Tid) -> Self {
        Self {
            all: AtomicU32::new(running.0),
            data: AtomicU32::new(running.0),
        }
    }

    /// Records a change in `tid` that reading the data back may depend on.
    pub(crate) fn note(&self, tid: Tid) {
        raise(&self.data, tid);
        raise(&self.all, tid);
    }

    /// Records a change in `tid` of times, owner or mode only.
    pub(crate) fn note_attributes(&self, tid: Tid) {
        raise(&self.all, tid);
    }

    /// The transaction a sync must wait for. With `data_only`, changes of attributes may be lost.
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
