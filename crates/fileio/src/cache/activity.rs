//! Excludes background work on a file (write-back, readahead) while its blocks are being removed.
//!
//! Background work begins and ends; a freeze refuses new work and waits for running work to end. Beginning
//! never waits: if the file is frozen, the background thread does something else first. So the flusher holds
//! no lock of a file and waits for none. A thread that does the flusher's work on a file itself has exclusive
//! access: to background work, the file then looks frozen.
//!
//! Invariants: while a [`Frozen`] lives, no [`Running`] or [`Exclusive`] of the same file exists or begins.
//! While an [`Exclusive`] lives, no other [`Exclusive`] and no [`Running`] exists or begins.

use std::sync::Arc;

use crate::sync::{Condvar, Mutex};

/// See the module documentation.
#[derive(Clone, Default)]
pub(crate) struct Activity {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    counts: Mutex<Counts>,
    /// Notified when the last running work has ended.
    quiet: Condvar,
}

#[derive(Default)]
struct Counts {
    /// Including exclusive work.
    running: usize,
    is_exclusive: bool,
    frozen: usize,
}

impl Activity {
    /// Begins shared work; `None` while the file is frozen or has exclusive work.
    pub(crate) fn begin(&self) -> Option<Running> {
        let mut counts = self.inner.counts.lock();
        if counts.frozen > 0 || counts.is_exclusive {
            return None;
        }
        counts.running += 1;
        drop(counts);
        Some(Running {
            inner: Arc::clone(&self.inner),
        })
    }

    /// Begins exclusive work; `None` while the file is frozen or any work is running.
    pub(crate) fn begin_exclusive(&self) -> Option<Exclusive<'_>> {
        let mut counts = self.inner.counts.lock();
        if counts.frozen > 0 || counts.running > 0 {
            return None;
        }
        counts.running = 1;
        counts.is_exclusive = true;
        Some(Exclusive { activity: self })
    }

    /// Refuses new work, and returns when no work is running.
    pub(crate) fn freeze(&self) -> Frozen<'_> {
        let mut counts = self.inner.counts.lock();
        counts.frozen += 1;
        while counts.running > 0 {
            self.inner.quiet.wait(&mut counts);
        }
        drop(counts);
        Frozen { activity: self }
    }
}

/// Background work on a file, until dropped. Owned, so that it can move with a run to the thread that
/// completes it.
#[must_use = "the work has ended when this is dropped"]
pub(crate) struct Running {
    inner: Arc<Inner>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut counts = self.inner.counts.lock();
        counts.running -= 1;
        if counts.running == 0 {
            self.inner.quiet.notify_all();
        }
    }
}

/// Exclusive work on a file, until dropped.
#[must_use = "the work has ended when this is dropped"]
pub(crate) struct Exclusive<'a> {
    activity: &'a Activity,
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        let mut counts = self.activity.inner.counts.lock();
        counts.running = 0;
        counts.is_exclusive = false;
        self.activity.inner.quiet.notify_all();
    }
}

/// While this lives, no background work on the file runs or begins.
#[must_use = "the file thaws when this is dropped"]
pub(crate) struct Frozen<'a> {
    activity: &'a Activity,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.activity.inner.counts.lock().frozen -= 1;
    }
}
