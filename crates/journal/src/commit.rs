//! Group commit: one caller leads, the others join. [`Core`] is shared by [`crate::Journal`], its handles and
//! its thread.
//!
//! ```text
//!   sync ──┐
//!   sync ──┼─► leader: seal ─► home or log ─► committed = tid
//!   full ──┤      ▲ the others wait here; one of them leads the next round for all
//!   age  ──┘
//! ```
//!
//! Invariants:
//! - Transactions become durable in their order, one at a time.
//! - A round of [`Core::sync`] covers every call made before the round began: its flush comes after the
//!   callers' writes.
//! - After the first failure nothing more is committed. Blocks that could not be written stay readable in
//!   memory. A device without room is no such failure: the transaction waits, later ones behind it, and each
//!   sync and the journal's thread try again. So do checkpoints. Meanwhile callers get the device's error.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use throughline_block::{Event, Rounds};
use throughline_locks::{Mutex, Rank};

use crate::cache::Cache;
use crate::daemon::Signals;
use crate::error::{Abort, Error, Result};
use crate::gate::{Entry, Gate, Sealed};
use crate::home;
use crate::log::Log;
use crate::tid::Tid;

/// Bits of [`Core::full`].
const COMMIT: u8 = 1;
const CHECKPOINT: u8 = 2;

/// Counts of a journal since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Transactions made durable.
    pub commits: u64,
    /// Calls that led a commit or a flush, or waited for one.
    pub waits: u64,
    /// Blocks of all kinds written to the log; 0 without a log.
    pub log_blocks: u64,
    /// Checkpoints done.
    pub checkpoints: u64,
}

/// See the head of this file.
pub(crate) struct Core {
    pub(crate) cache: Cache,
    pub(crate) gate: Gate,
    /// The on-disk journal, if there is one.
    pub(crate) log: Option<Log>,
    pub(crate) read_only: bool,
    aborted: OnceLock<Arc<Abort>>,
    pub(crate) credit_overruns: AtomicU64,
    /// [`Tid`] of the newest durable transaction.
    committed: AtomicU32,
    commits: AtomicU64,
    rounds: Rounds,
    /// A sealed transaction that found no room on the device.
    waiting: Mutex<Option<Sealed>>,
    /// What found no room on the device the last time: [`COMMIT`], [`CHECKPOINT`].
    full: AtomicU8,
    /// A transaction that could not be written. Keeps its blocks in memory for the life of the journal.
    lost: Mutex<Option<Sealed>>,
    /// Signals for the journal's thread.
    pub(crate) signals: Arc<Signals>,
}

impl Core {
    pub(crate) fn new(cache: Cache, gate: Gate, log: Option<Log>, read_only: bool) -> Self {
        Self {
            committed: AtomicU32::new(gate.tid().previous().0),
            cache,
            gate,
            log,
            read_only,
            aborted: OnceLock::new(),
            credit_overruns: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            rounds: Rounds::new(Rank::Rounds),
            waiting: Mutex::default(),
            full: AtomicU8::new(0),
            lost: Mutex::default(),
            signals: Arc::default(),
        }
    }

    /// The newest durable transaction.
    pub(crate) fn committed(&self) -> Tid {
        Tid(self.committed.load(Ordering::Acquire))
    }

    /// Enters a handle into the running transaction; commits first if that is full.
    pub(crate) fn enter(&self, credits: u32) -> Result<Tid> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        let limits = self.gate.limits();
        if !limits.soft && u64::from(credits) > limits.most {
            return Err(Error::Unsupported(format!(
                "an operation of {credits} blocks, more than the {} that one transaction holds",
                limits.most
            )));
        }
        loop {
            self.check_alive()?;
            match self.gate.enter(&self.cache, credits) {
                Entry::In(tid) => return Ok(tid),
                Entry::Full(tid) => self.commit(tid)?,
                Entry::Stopped => {}
            }
        }
    }

    /// Makes all metadata changed before the call durable, and all data written to the device before it.
    pub(crate) fn sync(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        if let Some(mut round) = self.rounds.sync(|| self.check_alive())? {
            if !self.lead()? {
                self.latch(self.cache.disk().flush())?;
            }
            round.done();
        }
        Ok(())
    }

    /// Makes the transaction `tid` durable, and all data written to the device before the call.
    pub(crate) fn sync_through(&self, tid: Tid) -> Result<()> {
        if self.read_only || tid.is_after(self.committed()) {
            return self.sync();
        }
        self.check_alive()?;
        self.latch(self.cache.disk().flush())
    }

    /// Makes the transaction `tid` durable.
    pub(crate) fn commit(&self, tid: Tid) -> Result<()> {
        let is_committed = || !tid.is_after(self.committed());
        let round = self.rounds.until(is_committed, || self.check_alive())?;
        if let Some(mut round) = round
            && self.lead()?
        {
            round.done();
        }
        self.check_alive()
    }

    /// Commits the running transaction and makes all data durable that was written to the device before;
    /// `false` if the transaction has no changes. Called by the leader of a round.
    fn lead(&self) -> Result<bool> {
        self.check_alive()?;
        let waited = self.waiting.lock().take();
        let has_waited = waited.is_some();
        if let Some(sealed) = waited {
            self.write(sealed)?;
        }
        match self.gate.seal(&self.cache) {
            Some(sealed) => self.write(sealed).map(|()| true),
            None => Ok(has_waited),
        }
    }

    /// Makes a sealed transaction durable. If the device has no room for it, it waits.
    fn write(&self, sealed: Sealed) -> Result<()> {
        let tid = sealed.tid;
        let began = self.cache.disk().has_listeners().then(Instant::now);
        let _abort_on_panic = AbortOnPanic(self);
        // The transaction may contain a half-done operation, which must not reach the disk.
        if let Err(error) = self.check_alive() {
            *self.lost.lock() = Some(sealed);
            return Err(error);
        }
        let written = match &self.log {
            Some(log) => log.commit(&self.cache, sealed),
            None => match home::commit(&self.cache, &sealed.blocks) {
                Ok(()) => {
                    self.cache.unpin(sealed.blocks.len() as u64);
                    Ok(())
                }
                Err(error) => Err((sealed, error.into())),
            },
        };
        if let Err((sealed, error)) = written {
            if error.is_full() {
                *self.waiting.lock() = Some(sealed);
                return Err(self.found_no_room(COMMIT, error));
            }
            *self.lost.lock() = Some(sealed);
            self.fail(error);
            self.check_alive()?;
        }
        self.found_room(COMMIT);
        self.committed.store(tid.0, Ordering::Release);
        self.commits.fetch_add(1, Ordering::Relaxed);
        if let Some(began) = began {
            let took = began.elapsed();
            self.cache.disk().report(|| Event::Committed { took });
        }
        self.cache.evict();
        self.signals.committed();
        if self.log.as_ref().is_some_and(Log::wants_checkpoint) {
            self.signals.checkpoint();
        }
        Ok(())
    }

    /// Writes the blocks in the log home, which frees its space.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        self.check_alive()?;
        match log.checkpoint(&self.cache) {
            Ok(()) => self.found_room(CHECKPOINT),
            Err(error) if error.is_full() => return Err(self.found_no_room(CHECKPOINT, error)),
            Err(error) => self.fail(error),
        }
        self.cache.evict();
        self.check_alive()
    }

    /// Whether the last commit or checkpoint found no room on the device.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed) != 0
    }

    /// What found no room is tried again: by each sync, and by the journal's thread.
    fn found_no_room(&self, what: u8, error: Error) -> Error {
        if self.full.fetch_or(what, Ordering::Relaxed) == 0 {
            tracing::warn!(%error, "no room for metadata below the volume; changes wait in memory");
            self.signals.full();
        }
        error
    }

    fn found_room(&self, what: u8) {
        if self.is_full() && self.full.fetch_and(!what, Ordering::Relaxed) == what {
            tracing::info!("there is room below the volume again; the changes are written");
        }
    }

    /// Commits, checkpoints, and leaves the log empty.
    pub(crate) fn shut_down(&self) -> Result<()> {
        self.sync()?;
        let Some(log) = self.log.as_ref().filter(|_| !self.read_only) else {
            return Ok(());
        };
        // No other thread commits while this round is held, so the checkpoint covers the whole log.
        let _round = self.rounds.until(|| false, || self.check_alive())?;
        self.lead()?;
        self.checkpoint()?;
        match log.close() {
            Err(error) if error.is_full() => return Err(self.found_no_room(CHECKPOINT, error)),
            Err(error) => self.fail(error),
            Ok(()) => {}
        }
        self.check_alive()
    }

    /// Counts since the journal was opened.
    pub(crate) fn counts(&self) -> Counts {
        let log = self.log.as_ref().map(Log::usage);
        Counts {
            commits: self.commits.load(Ordering::Relaxed),
            waits: self.rounds.waits(),
            log_blocks: log.map_or(0, |log| log.written_blocks),
            checkpoints: log.map_or(0, |log| log.checkpoints),
        }
    }

    pub(crate) fn aborted(&self) -> Option<&Arc<Abort>> {
        self.aborted.get()
    }

    pub(crate) fn check_alive(&self) -> Result<()> {
        match self.aborted.get() {
            Some(reason) => Err(Error::Aborted(Arc::clone(reason))),
            None => Ok(()),
        }
    }

    fn latch(&self, written: throughline_block::Result<()>) -> Result<()> {
        match written {
            Err(error) if error.is_full() => return Err(error.into()),
            Err(error) => self.abort(Abort::Write(error)),
            Ok(()) => {}
        }
        self.check_alive()
    }

    /// Aborts because a commit or a checkpoint failed.
    fn fail(&self, error: Error) {
        self.abort(match error {
            Error::Device(error) => Abort::Write(error),
            other => Abort::Refused(other.to_string()),
        });
    }

    /// Stops all changes. Only the first reason is kept.
    pub(crate) fn abort(&self, reason: Abort) {
        if self.aborted.set(Arc::new(reason)).is_ok()
            && let Some(reason) = self.aborted.get()
        {
            tracing::error!(%reason, "the volume refuses further changes");
        }
        self.gate.stop();
    }
}

/// Guards a sealed transaction while it is written. If a panic loses it, the journal is aborted, because
/// later transactions must not reach the disk without it.
struct AbortOnPanic<'c>(&'c Core);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abort(Abort::Refused("a commit panicked".into()));
        }
    }
}
