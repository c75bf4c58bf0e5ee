//! The running transaction: which handles are in it, how much they may still add, and the moment at which it is
//! sealed.
//!
//! ```text
//!  enter ─► handles of T ─► leave          seal: new handles wait, the open ones end,
//!                 │                              T's blocks and revokes are taken, T + 1 runs
//!                 └── reserved credits
//! ```
//!
//! Invariants:
//! - A handle is in one transaction from its begin to its end, and a transaction is sealed with no handle in it:
//!   operations are whole in it or not in it.
//! - What is in the transaction and what its handles may still add stays within `most`: it fits into the log.
//! - Sealed transactions are numbered without a gap: one without changes is not sealed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use throughline_extfmt::FsBlock;

use crate::cache::{Cache, SealedBlock};
use crate::tid::Tid;

/// How many blocks one transaction may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// From here on a transaction takes no new handles.
    pub(crate) most: u64,
    /// Whether one handle alone may go over `most`: where there is no log, nothing has to fit.
    pub(crate) soft: bool,
}

/// What a transaction consists of.
pub(crate) struct Sealed {
    pub(crate) tid: Tid,
    /// Its blocks as they are at the seal, ascending.
    pub(crate) blocks: Vec<SealedBlock>,
    /// Freed metadata, ascending.
    pub(crate) revokes: Vec<FsBlock>,
}

/// How an attempt to begin a handle ended.
pub(crate) enum Entry {
    /// In this transaction.
    In(Tid),
    /// This transaction takes no more: it has to be committed first.
    Full(Tid),
    /// The journal was stopped while it waited.
    Stopped,
}

/// See the head of this file.
pub(crate) struct Gate {
    running: Mutex<Running>,
    changed: Condvar,
    limits: Limits,
    /// `running.revokes.len()`, to be looked at without the lock.
    revokes: AtomicUsize,
}

struct Running {
    tid: Tid,
    /// Open handles.
    handles: u32,
    /// The credits of the open handles, used or not.
    reserved: u64,
    /// Somebody waits for the open handles to end.
    sealing: bool,
    /// Handles that wait for others to end.
    waiting: u32,
    /// Nothing begins any more.
    stopped: bool,
    /// When its first change was done.
    since: Option<Instant>,
    revokes: BTreeSet<FsBlock>,
}

impl Gate {
    /// Nothing in it, `tid` running.
    pub(crate) fn new(tid: Tid, limits: Limits) -> Self {
        Self {
            running: Mutex::new(Running {
                tid,
                handles: 0,
                reserved: 0,
                sealing: false,
                waiting: 0,
                stopped: false,
                since: None,
                revokes: BTreeSet::new(),
            }),
            changed: Condvar::new(),
            limits,
            revokes: AtomicUsize::new(0),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// The running transaction.
    pub(crate) fn tid(&self) -> Tid {
        self.running.lock().tid
    }

    /// Since when the running transaction has changes.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.running.lock().since
    }

    /// Wakes all who wait: nothing begins any more.
    pub(crate) fn stop(&self) {
        self.running.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Enters a handle of `credits` blocks. Waits for others to end where that makes enough room.
    pub(crate) fn enter(&self, cache: &Cache, credits: u32) -> Entry {
        let mut running = self.running.lock();
        loop {
            if running.stopped {
                return Entry::Stopped;
            }
            let there = cache.running_blocks() + running.revokes.len() as u64;
            let wanted = there + u64::from(credits);
            if !running.sealing {
                let alone = self.limits.soft && there == 0 && running.handles == 0;
                if alone || wanted + running.reserved <= self.limits.most {
                    running.handles += 1;
                    running.reserved += u64::from(credits);
                    return Entry::In(running.tid);
                }
                // Without the others' reserves it would fit; or it will after a commit, which waits for them too.
                if wanted > self.limits.most || running.handles == 0 {
                    return Entry::Full(running.tid);
                }
            }
            self.wait(&mut running);
        }
    }

    fn wait(&self, running: &mut MutexGuard<'_, Running>) {
        running.waiting += 1;
        self.changed.wait(running);
        running.waiting -= 1;
    }

    /// Ends a handle that had `credits`; `changed` says whether it changed something. Whether that was the first change of
    /// the running transaction.
    pub(crate) fn leave(&self, credits: u32, changed: bool) -> bool {
        let mut running = self.running.lock();
        running.handles -= 1;
        running.reserved -= u64::from(credits);
        let is_first = changed && running.since.is_none();
        if is_first {
            running.since = Some(Instant::now());
        }
        if running.waiting > 0 || (running.sealing && running.handles == 0) {
            drop(running);
            self.changed.notify_all();
        }
        is_first
    }

    /// Enters a freed block: what earlier transactions hold of it must not be replayed.
    pub(crate) fn revoke(&self, block: FsBlock) {
        let mut running = self.running.lock();
        running.revokes.insert(block);
        self.revokes.store(running.revokes.len(), Ordering::Relaxed);
    }

    /// Takes a revoke of the running transaction back: the block is metadata again in the same transaction.
    pub(crate) fn unrevoke(&self, block: FsBlock) {
        // Whoever makes a block metadata again knows that it was freed, so it sees its revoke.
        if self.revokes.load(Ordering::Relaxed) > 0 {
            let mut running = self.running.lock();
            running.revokes.remove(&block);
            self.revokes.store(running.revokes.len(), Ordering::Relaxed);
        }
    }

    /// Waits for the open handles and takes the transaction; `None` if nothing changed in it. One at a time calls it.
    pub(crate) fn seal(&self, cache: &Cache) -> Option<Sealed> {
        let mut running = self.running.lock();
        running.sealing = true;
        while running.handles > 0 {
            self.wait(&mut running);
        }
        let blocks = cache.seal();
        let revokes = std::mem::take(&mut running.revokes);
        self.revokes.store(0, Ordering::Relaxed);
        let tid = running.tid;
        let any = !blocks.is_empty() || !revokes.is_empty();
        if any {
            running.tid = tid.next();
        }
        running.since = None;
        running.sealing = false;
        drop(running);
        self.changed.notify_all();
        any.then(|| Sealed {
            tid,
            blocks,
            revokes: revokes.into_iter().collect(),
        })
    }
}
