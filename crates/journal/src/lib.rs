//! Metadata buffers, transactions and recovery.
//!
//! [`Journal`] is the one face for all metadata of a volume: blocks are read through it, changed through the
//! [`Handle`] of an operation, and made durable by [`Journal::sync`]. [`recovery`] finds what a journal holds that is
//! not home yet, and [`OverlayDevice`] shows an image as it will be after the replay, without touching it.
//!
//! ```text
//!   read ─────────────► cache ◄───── modify, create, forget ── Handle ◄── begin          cache, buffer, handle
//!                         │ changed in the running transaction                           gate
//!                         ▼
//!        sync, size, age: seal ─► log ─► committed ─► checkpoint ─► home                 commit, log, daemon
//!                             └─► home, where there is no journal on disk                home
//! ```
//!
//! Invariants:
//! - Readers hold snapshots ([`Block`]); a change never shows through one. So a commit takes a transaction as it is,
//!   and work goes on.
//! - An operation is in one transaction, whole.
//! - The memory of the cache is bounded by its [`Budget`] and the log: clean blocks are evicted, and `begin` commits a
//!   transaction that is big enough.
//! - The first failed metadata write, and an operation that ended half-way, stop all changes for good: later
//!   [`Journal::begin`] and [`Journal::sync`] return why.
#![forbid(unsafe_code)]

mod buffer;
mod cache;
mod clock;
mod commit;
mod daemon;
mod error;
mod features;
mod gate;
mod handle;
mod home;
mod log;
mod map;
mod overlay;
#[cfg(feature = "planted")]
mod planted;
pub mod recovery;
mod rounds;
mod tid;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use throughline_block::Disk;
use throughline_extfmt::{Corrupt, FsBlock};

pub use buffer::Block;
pub use clock::{Clock, SharedClock};
pub use commit::Counts;
pub use error::{Abort, Error, Result};
pub use handle::Handle;
pub use log::{LogOptions, LogUse};
pub use overlay::OverlayDevice;
#[cfg(feature = "planted")]
#[doc(hidden)]
pub use planted::Planted;
pub use tid::Tid;

use cache::Cache;
use commit::Core;
use daemon::Daemon;
use gate::{Gate, Limits};
use log::Log;
use recovery::JournalRun;

/// What the metadata of a volume may take of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Clean blocks kept, in bytes. More only while they are in use at one moment.
    pub clean_bytes: u64,
    /// Blocks changed in one transaction, in bytes: a new operation first commits one that has more. And as many that
    /// are committed and not home: with more, a checkpoint begins.
    pub dirty_bytes: u64,
}

impl Default for Budget {
    /// 32 MiB of clean and 32 MiB of dirty blocks.
    fn default() -> Self {
        Self {
            clean_bytes: 32 << 20,
            dirty_bytes: 32 << 20,
        }
    }
}

/// The metadata of one volume. See the crate's head.
pub struct Journal {
    core: Arc<Core>,
    /// Gone after [`Journal::shut_down`], and where nothing is written.
    daemon: Mutex<Option<Daemon>>,
}

/// How a [`Journal`] does.
#[derive(Clone, Debug)]
pub struct Status {
    /// Why no changes are taken any more, if that is so.
    pub aborted: Option<Arc<Abort>>,
    /// Whether it was opened for reading only.
    pub read_only: bool,
    /// Bytes of metadata in memory.
    pub resident_bytes: u64,
    /// Bytes of metadata that are not home yet, in all versions that are kept.
    pub dirty_bytes: u64,
    /// The newest durable transaction.
    pub committed: Tid,
    /// The running transaction.
    pub running: Tid,
    /// How long the running transaction has had changes; `None` where it has none.
    pub running_age: Option<Duration>,
    /// The journal on disk, where there is one.
    pub log: Option<LogUse>,
    /// Blocks that operations touched beyond their credits. Anything but 0 is a bug of the layer above, which a
    /// journal on disk would have to refuse.
    pub credit_overruns: u64,
}

impl Journal {
    /// The metadata of a volume without a journal, in blocks of `block_bytes` from the start of `disk`. Changes go home
    /// after `commit_interval` at the latest.
    ///
    /// A device that is read-only gives a journal that is.
    ///
    /// # Errors
    /// [`Error::Caller`] for a block size that is no power of two from 1 to 64 KiB; [`Error::Unsupported`] for one
    /// below the device's logical block, and where the system gives no thread.
    pub fn without_journal(
        disk: Arc<Disk>,
        block_bytes: u32,
        budget: Budget,
        commit_interval: Duration,
    ) -> Result<Self> {
        check_block_bytes(&disk, block_bytes)?;
        let read_only = disk.info().read_only;
        let limits = Limits {
            most: budget.dirty_bytes / u64::from(block_bytes),
            soft: true,
        };
        let cache = Cache::new(disk, block_bytes, budget.clean_bytes);
        let core = Core::new(cache, Gate::new(Tid(1), limits), None, read_only);
        Self::start(core, commit_interval)
    }

    /// The metadata of a volume of `fs_blocks` blocks with a journal in its blocks `runs`, which holds nothing that is
    /// not home ([`recovery`] sees to that). It gets the features that a volume like this is written with.
    ///
    /// # Errors
    /// As [`Journal::without_journal`]; [`Error::Caller`] for a journal that is not empty, [`Error::Unsupported`] for one
    /// with unknown features or too small, [`Error::Corrupt`] for a damaged one; the device's.
    pub fn with_log(
        disk: Arc<Disk>,
        block_bytes: u32,
        fs_blocks: u64,
        runs: &[JournalRun],
        budget: Budget,
        options: &LogOptions,
    ) -> Result<Self> {
        check_block_bytes(&disk, block_bytes)?;
        let log = Log::open(
            Arc::clone(&disk),
            block_bytes,
            fs_blocks,
            runs,
            budget.dirty_bytes,
            options,
        )?;
        let gate = Gate::new(log.first_tid(), log.limits(budget.dirty_bytes));
        let cache = Cache::new(disk, block_bytes, budget.clean_bytes);
        Self::start(
            Core::new(cache, gate, Some(log), false),
            options.commit_interval,
        )
    }

    /// Metadata for reading only: nothing is ever written.
    ///
    /// # Errors
    /// As [`Journal::without_journal`].
    pub fn read_only(disk: Arc<Disk>, block_bytes: u32, budget: Budget) -> Result<Self> {
        check_block_bytes(&disk, block_bytes)?;
        let limits = Limits {
            most: 0,
            soft: false,
        };
        let cache = Cache::new(disk, block_bytes, budget.clean_bytes);
        Self::start(
            Core::new(cache, Gate::new(Tid(1), limits), None, true),
            Duration::MAX,
        )
    }

    fn start(core: Core, commit_interval: Duration) -> Result<Self> {
        let core = Arc::new(core);
        let daemon = if core.read_only {
            None
        } else {
            let signals = Arc::clone(&core.signals);
            let daemon = Daemon::start(Arc::clone(&core), signals, commit_interval);
            Some(
                daemon
                    .map_err(|e| Error::Unsupported(format!("no thread for the journal: {e}")))?,
            )
        };
        Ok(Self {
            core,
            daemon: Mutex::new(daemon),
        })
    }

    /// Whether there is a journal on disk, so that a crash leaves every transaction whole or not at all.
    pub fn has_log(&self) -> bool {
        self.core.log.is_some()
    }

    /// The block size, in bytes.
    pub fn block_bytes(&self) -> u32 {
        self.core.cache.block_bytes()
    }

    /// The disk below.
    pub fn disk(&self) -> &Arc<Disk> {
        self.core.cache.disk()
    }

    /// A snapshot of `block`, from the cache or the device.
    ///
    /// # Errors
    /// A device error; [`Error::Corrupt`] for a block that lies past the end of the device.
    pub fn read(&self, block: FsBlock) -> Result<Block> {
        self.core.cache.read(
            block,
            None::<fn(&[u8]) -> core::result::Result<(), Corrupt>>,
        )
    }

    /// A snapshot of `block` that passed `check`, which runs once after each load of the block, not at each call.
    /// So all callers of one block have to mean the same check. Blocks made or changed by us count as checked.
    ///
    /// # Errors
    /// As [`Journal::read`]; [`Error::Corrupt`] with what `check` found, again at each call.
    pub fn read_checked(
        &self,
        block: FsBlock,
        check: impl FnOnce(&[u8]) -> core::result::Result<(), Corrupt>,
    ) -> Result<Block> {
        self.core.cache.read(block, Some(check))
    }

    /// Reads those of `blocks` that are not cached in one batch of long bios, up to a quarter of the budget.
    /// A hint: it returns no error, whoever reads a block that failed gets it.
    pub fn readahead(&self, blocks: &[FsBlock]) {
        self.core.cache.readahead(blocks);
    }

    /// Begins an operation that will touch at most `credits` blocks ([`Journal::max_credits`]), after a commit if the
    /// running transaction has no room for them. A thread must not begin a second one before it stopped the first.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], and [`Error::Aborted`] after a failure; [`Error::Unsupported`] for more credits than the log
    /// can ever take.
    pub fn begin(&self, credits: u32) -> Result<Handle<'_>> {
        Handle::begin(&self.core, credits)
    }

    /// The most credits that one operation may have: about half of the log; any number where there is no log.
    pub fn max_credits(&self) -> u32 {
        let limits = self.core.gate.limits();
        if limits.soft {
            u32::MAX
        } else {
            u32::try_from(limits.most).unwrap_or(u32::MAX)
        }
    }

    /// Makes everything durable that was done before the call: all metadata, and whatever data has been written
    /// to the device. Not while this thread has a handle: a commit waits for it.
    ///
    /// # Errors
    /// [`Error::Aborted`] now and for ever after a metadata write or a flush failed, or an operation ended
    /// half-way.
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// Makes the transaction `tid` durable, and whatever data has been written to the device. As [`Journal::sync`], but
    /// later transactions may stay where they are.
    ///
    /// # Errors
    /// As [`Journal::sync`].
    pub fn sync_through(&self, tid: Tid) -> Result<()> {
        self.core.sync_through(tid)
    }

    /// Commits the running transaction, if anything is in it. Not while this thread has a handle.
    ///
    /// # Errors
    /// As [`Journal::sync`].
    pub fn commit(&self) -> Result<()> {
        if self.core.read_only {
            return Ok(());
        }
        self.core.commit(self.core.gate.tid())
    }

    /// Has the journal's thread do this after commits, once for several where they come fast; the first one given stays. It
    /// may read and wait for the device; it must not begin a handle nor wait for a commit.
    pub fn after_commits(&self, after: impl Fn() + Send + Sync + 'static) {
        self.core.signals.set_after_commits(Box::new(after));
    }

    /// Ends that a block which a durable transaction changed is metadata: it is home, no replay writes it any more, and nothing of
    /// it is kept. Nobody else may use it meanwhile.
    ///
    /// # Errors
    /// [`Error::Aborted`] after a failed write; the block's content is lost to who reads the device then.
    pub fn give_up(&self, block: FsBlock) -> Result<()> {
        self.core.checkpoint()?;
        self.core.cache.discard(block);
        Ok(())
    }

    /// The running transaction: whatever is done from now on is in it or in a later one.
    pub fn running(&self) -> Tid {
        self.core.gate.tid()
    }

    /// The newest durable transaction. What it and those before it freed may be used again.
    pub fn committed(&self) -> Tid {
        self.core.committed()
    }

    /// Commits, writes everything home and leaves an empty log; the journal's thread is gone then. Nothing may be changed
    /// afterwards but for reading.
    ///
    /// # Errors
    /// As [`Journal::sync`]; the log then still holds what it held.
    pub fn shut_down(&self) -> Result<()> {
        drop(self.daemon.lock().take());
        self.core.shut_down()
    }

    /// Stops all changes for good, because the layer above found a reason.
    pub fn refuse_changes(&self, reason: impl Into<String>) {
        self.core.abort(Abort::Refused(reason.into()));
    }

    /// Runs `change`, of something at home, while no checkpoint writes there: after the journal was stopped, the last one may
    /// still be on its way. `change` must not use the journal.
    pub fn while_home_rests<R>(&self, change: impl FnOnce() -> R) -> R {
        match &self.core.log {
            Some(log) => log.while_home_rests(change),
            None => change(),
        }
    }

    /// Records an error, a positive errno, in the journal on disk, where there is one, for whoever opens it next.
    ///
    /// # Errors
    /// The device's.
    pub fn record_error(&self, errno: u32) -> Result<()> {
        match &self.core.log {
            Some(log) => log.record_error(errno),
            None => Ok(()),
        }
    }

    /// Gives it a bug, where it has a log.
    #[cfg(feature = "planted")]
    #[doc(hidden)]
    pub fn plant(&self, bug: Planted) {
        if let Some(log) = &self.core.log {
            log.bug.plant(bug);
        }
    }

    /// Whether it has this bug.
    #[cfg(feature = "planted")]
    #[doc(hidden)]
    pub fn has_bug(&self, bug: Planted) -> bool {
        self.core.log.as_ref().is_some_and(|log| log.bug.is(bug))
    }

    /// Why no changes are taken any more, if that is so.
    pub fn aborted(&self) -> Option<Arc<Abort>> {
        self.core.aborted().cloned()
    }

    /// Bytes of metadata that are not home yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.core.cache.pinned_bytes()
    }

    /// What it did since it was opened.
    pub fn counts(&self) -> Counts {
        self.core.counts()
    }

    /// How it does.
    pub fn status(&self) -> Status {
        Status {
            aborted: self.aborted(),
            read_only: self.core.read_only,
            resident_bytes: self.core.cache.resident_bytes(),
            dirty_bytes: self.dirty_bytes(),
            committed: self.committed(),
            running: self.running(),
            running_age: self.core.gate.since().map(|since| since.elapsed()),
            log: self.core.log.as_ref().map(Log::usage),
            credit_overruns: self.core.credit_overruns.load(Ordering::Relaxed),
        }
    }
}

fn check_block_bytes(disk: &Disk, block_bytes: u32) -> Result<()> {
    if !block_bytes.is_power_of_two() || !(1024..=65536).contains(&block_bytes) {
        return Err(Error::Caller(
            "the block size is no power of two from 1 to 64 KiB",
        ));
    }
    let logical_bytes = disk.limits().logical_block_bytes;
    if block_bytes < logical_bytes {
        return Err(Error::Unsupported(format!(
            "blocks of {block_bytes} bytes on a device whose logical block has {logical_bytes}"
        )));
    }
    Ok(())
}
