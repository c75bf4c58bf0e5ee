//! Background work on a file (write-back, readahead) against whatever takes its blocks away.
//!
//! Background work enters and leaves; a freeze keeps new work out and waits for what runs. It is entered without waiting:
//! background work that finds a file frozen does something else first. So the flusher holds no lock of a file, and waits for none.
//! Who does the flusher's work on a file himself is alone: background work finds the file as if it were frozen.
//!
//! Invariants: while a [`Frozen`] lives there is no [`Running`] and no [`Alone`] of the same file, and none begins. While an
//! [`Alone`] lives there is no other and no [`Running`], and none begins.

use std::sync::Arc;

use crate::sync::{Condvar, Mutex};

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Activity {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    counts: Mutex<Counts>,
    /// The last of those that ran has left.
    quiet: Condvar,
}

#[derive(Default)]
struct Counts {
    /// Whoever is alone among them.
    running: usize,
    is_alone: bool,
    frozen: usize,
}

impl Activity {
    /// Enters; `None` while frozen, and while somebody is alone.
    pub(crate) fn begin(&self) -> Option<Running> {
        let mut counts = self.inner.counts.lock();
        if counts.frozen > 0 || counts.is_alone {
            return None;
        }
        counts.running += 1;
        drop(counts);
        Some(Running {
            inner: Arc::clone(&self.inner),
        })
    }

    /// Enters alone; `None` while frozen, and while anything runs.
    pub(crate) fn begin_alone(&self) -> Option<Alone<'_>> {
        let mut counts = self.inner.counts.lock();
        if counts.frozen > 0 || counts.running > 0 {
            return None;
        }
        counts.running = 1;
        counts.is_alone = true;
        Some(Alone { activity: self })
    }

    /// Keeps new work out, and returns when none runs any more.
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

/// Background work on a file, until dropped. Owned: it goes along with a run to wherever that completes.
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

/// The only work on a file, until dropped.
#[must_use = "the work has ended when this is dropped"]
pub(crate) struct Alone<'a> {
    activity: &'a Activity,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let mut counts = self.activity.inner.counts.lock();
        counts.running = 0;
        counts.is_alone = false;
        self.activity.inner.quiet.notify_all();
    }
}

/// No background work runs on the file, nor begins, until this is dropped.
#[must_use = "the file thaws when this is dropped"]
pub(crate) struct Frozen<'a> {
    activity: &'a Activity,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.activity.inner.counts.lock().frozen -= 1;
    }
}
