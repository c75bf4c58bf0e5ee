//! The running transaction: its open handles, how many blocks they may still add, and its sealing.
//!
//! ```text
//!  enter ─► handles of T ─► leave          seal: new handles wait, the open ones end,
//!                 │                              T's blocks and revokes are taken, T + 1 runs
//!                 └── reserved credits
//! ```
//!
//! Invariants:
//! - A handle belongs to one transaction from begin to end, and a transaction is sealed only when no handle
//!   is open: it contains operations whole or not at all.
//! - The blocks in the transaction plus those that its handles may still add stay within `most`, so it fits
//!   into the log.
//! - Sealed transactions are numbered without a gap: a transaction without changes is not sealed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use throughline_extfmt::FsBlock;
use throughline_locks::{Condvar, Mutex, MutexGuard, Rank};

use crate::cache::{Cache, SealedBlock};
use crate::tid::Tid;

/// The size limit of one transaction, in blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most blocks, including the credits of open handles.
    pub(crate) most: u64,
    /// Whether a single handle in an empty transaction may exceed `most`: without a log, nothing has to fit.
    pub(crate) soft: bool,
}

/// A transaction that admits no further changes.
pub(crate) struct Sealed {
    pub(crate) tid: Tid,
    /// Its blocks as they are at the seal, ascending.
    pub(crate) blocks: Vec<SealedBlock>,
    /// Freed metadata, ascending.
    pub(crate) revokes: Vec<FsBlock>,
}

/// How an attempt to begin a handle ended.
pub(crate) enum Entry {
    /// It is in this transaction.
    In(Tid),
    /// This transaction has no room: it must be committed first.
    Full(Tid),
    /// The journal was aborted.
    Stopped,
}

/// See the head of this file.
pub(crate) struct Gate {
    running: Mutex<Running>,
    changed: Condvar,
    limits: Limits,
    /// `running.revokes.len()`, readable without the lock.
    revokes: AtomicUsize,
}

struct Running {
    tid: Tid,
    /// Open handles.
    handles: u32,
    /// The credits of the open handles, used or not.
    reserved: u64,
    /// A commit waits for the open handles to end.
    sealing: bool,
    /// Threads that wait for handles to end or for a seal.
    waiting: u32,
    /// No handle may begin.
    stopped: bool,
    /// The time of its first change.
    since: Option<Instant>,
    revokes: BTreeSet<FsBlock>,
}

impl Gate {
    /// A gate with `tid` running, and empty.
    pub(crate) fn new(tid: Tid, limits: Limits) -> Self {
        Self {
            running: Mutex::ranked(
                Rank::Running,
                Running {
                    tid,
                    handles: 0,
                    reserved: 0,
                    sealing: false,
                    waiting: 0,
                    stopped: false,
                    since: None,
                    revokes: BTreeSet::new(),
                },
            ),
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

    /// The time of the first change in the running transaction; `None` if it has no changes.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.running.lock().since
    }

    /// Refuses new handles from now on, and wakes all waiters.
    pub(crate) fn stop(&self) {
        self.running.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Enters a handle of `credits` blocks. Waits for other handles to end if their unused credits would make
    /// enough room.
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
                // If it fits without the credits of the open handles, wait for them to end; otherwise only a
                // commit, which also waits for them, makes room.
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

    /// Ends a handle that had `credits`; `changed` says whether it changed something. Returns whether that
    /// was the first change of the running transaction.
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

    /// Records a freed block, whose copies in earlier transactions must not be replayed.
    pub(crate) fn revoke(&self, block: FsBlock) {
        let mut running = self.running.lock();
        running.revokes.insert(block);
        self.revokes.store(running.revokes.len(), Ordering::Relaxed);
    }

    /// Cancels a revoke of the running transaction: the block is metadata again in the same transaction.
    pub(crate) fn unrevoke(&self, block: FsBlock) {
        // The load may be relaxed: a caller that makes a block metadata again has seen that it was freed, and
        // so sees its revoke.
        if self.revokes.load(Ordering::Relaxed) > 0 {
            let mut running = self.running.lock();
            running.revokes.remove(&block);
            self.revokes.store(running.revokes.len(), Ordering::Relaxed);
        }
    }

    /// Waits for the open handles to end and takes the transaction; `None` if it has no changes. Only the
    /// leader of a round may call it.
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
