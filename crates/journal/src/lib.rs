//! Metadata buffers, transactions and recovery.
//!
//! All metadata of a volume goes through [`Journal`]: blocks are read through it, changed through the
//! [`Handle`] of an operation, and made durable by [`Journal::sync`]. [`recovery`] finds the blocks of an
//! on-disk journal that are not home yet. [`OverlayDevice`] presents an image as it will be after replay,
//! without modifying it.
//!
//! *Home* is a block's own place in the file system, as opposed to its copy in the log.
//!
//! ```text
//!   read ─────────────► cache ◄───── modify, create, forget ── Handle ◄── begin     cache, buffer, handle
//!                         │ changed in the running transaction                      gate
//!                         ▼
//!        sync, size, age: seal ─► log ─► committed ─► checkpoint ─► home            commit, log, daemon
//!                             └─► home, without an on-disk journal                  home
//! ```
//!
//! Invariants:
//! - Readers hold snapshots ([`Block`]), which never change. So a commit can write a transaction's snapshots
//!   while operations continue.
//! - All changes of an operation belong to the same transaction.
//! - The cache's memory is bounded by its [`Budget`] and by the log: clean blocks are evicted, and `begin`
//!   commits a transaction that has reached its limit.
//! - The first failed metadata write, or an operation that ends half-done, aborts the journal permanently:
//!   later calls of [`Journal::begin`] and [`Journal::sync`] return the reason.
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
mod parts;
mod planted;
pub mod recovery;
mod residents;
mod tid;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use throughline_block::Disk;
use throughline_extfmt::{Corrupt, FsBlock};
use throughline_locks::Mutex;

pub use buffer::{Block, Pin};
pub use clock::{Clock, SharedClock};
pub use commit::Counts;
pub use error::{Abort, Error, Result};
pub use handle::Handle;
pub use log::{LogOptions, LogUse};
pub use overlay::OverlayDevice;
pub use parts::{Part, Sum};
#[doc(hidden)]
pub use planted::Planted;
pub use tid::Tid;

use cache::Cache;
use commit::Core;
use daemon::Daemon;
use gate::{Gate, Limits};
use log::Log;
use recovery::JournalRun;

/// Memory limits for the metadata of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Clean blocks to keep, in bytes. Exceeded only by blocks that are in use.
    pub clean_bytes: u64,
    /// Blocks changed in one transaction, in bytes: beyond this, a new operation first commits the running
    /// transaction. The same limit applies to blocks that are committed but not home: beyond it, a checkpoint
    /// begins.
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

/// The metadata of one volume. See the crate documentation.
pub struct Journal {
    core: Arc<Core>,
    /// `None` after [`Journal::shut_down`], and in a read-only journal.
    daemon: Mutex<Option<Daemon>>,
}

/// The state of a [`Journal`].
#[derive(Clone, Debug)]
pub struct Status {
    /// Why the journal refuses changes; `None` if it accepts them.
    pub aborted: Option<Arc<Abort>>,
    /// Whether it was opened for reading only.
    pub read_only: bool,
    /// Bytes of metadata in memory.
    pub resident_bytes: u64,
    /// Bytes of metadata that are not home yet, counting every version kept in memory.
    pub dirty_bytes: u64,
    /// The newest durable transaction.
    pub committed: Tid,
    /// The running transaction.
    pub running: Tid,
    /// Time since the first change in the running transaction; `None` if it has no changes.
    pub running_age: Option<Duration>,
    /// The last commit or checkpoint found no room on the device, and is tried again.
    pub full: bool,
    /// Usage of the on-disk journal; `None` without one.
    pub log: Option<LogUse>,
    /// Blocks that operations touched beyond their credits. A value other than 0 is a bug in the layer above:
    /// with an on-disk journal, the transaction might not fit into the log.
    pub credit_overruns: u64,
}

impl Journal {
    /// Opens the metadata of a volume without an on-disk journal, in blocks of `block_bytes` from the start
    /// of `disk`. Changes are written home after `commit_interval` at the latest.
    ///
    /// On a read-only device the journal is read-only.
    ///
    /// # Errors
    /// [`Error::Caller`] for a block size that is not a power of two from 1 KiB to 64 KiB;
    /// [`Error::Unsupported`] for a block smaller than the device's logical block, and when the journal's
    /// thread cannot be started.
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

    /// Opens the metadata of a volume of `fs_blocks` blocks whose journal lies in the blocks `runs`. The
    /// journal must be empty; [`recovery`] empties it. Its superblock gets the features that `options` call
    /// for.
    ///
    /// # Errors
    /// As [`Journal::without_journal`]; [`Error::Caller`] for a journal that is not empty,
    /// [`Error::Unsupported`] for one that has unknown features or is too small, [`Error::Corrupt`] for a
    /// damaged one; device errors.
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

    /// Opens the metadata for reading only: nothing is ever written.
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
            Some(daemon.map_err(|error| Error::System {
                what: "starting the journal's thread",
                source: Arc::new(error),
            })?)
        };
        Ok(Self {
            core,
            daemon: Mutex::new(daemon),
        })
    }

    /// Whether there is an on-disk journal, so that transactions are atomic across a crash.
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

    /// A snapshot of `block` that passed `check`. The check runs once after each load of the block, not at
    /// each call, so all callers must pass the same check for the same block. Blocks created or changed
    /// through a [`Handle`] count as checked.
    ///
    /// # Errors
    /// As [`Journal::read`]; [`Error::Corrupt`] with the error of `check`, at each call.
    pub fn read_checked(
        &self,
        block: FsBlock,
        check: impl FnOnce(&[u8]) -> core::result::Result<(), Corrupt>,
    ) -> Result<Block> {
        self.core.cache.read(block, Some(check))
    }

    /// A snapshot of `block` for a caller that uses the part at `index` ([`Part`]), which passed `check`. The
    /// check runs once after each load of the block. Parts changed by [`Handle::modify_part`] count as
    /// checked; their checksums in the snapshot may be out of date.
    ///
    /// # Errors
    /// As [`Journal::read_checked`].
    pub fn read_part(
        &self,
        block: FsBlock,
        index: u32,
        check: impl FnOnce(&[u8]) -> core::result::Result<(), Corrupt>,
    ) -> Result<Block> {
        self.core.cache.read_part(block, index, check)
    }

    /// Reads those of `blocks` that are not cached in one batch of long bios, up to a quarter of the budget.
    /// A hint: it returns no error. If the read failed, a later read of the block is tried again and returns
    /// its error.
    pub fn readahead(&self, blocks: &[FsBlock]) {
        self.core.cache.readahead(blocks);
    }

    /// Whether a block is cached, so that reading it needs no device.
    pub fn has(&self, block: FsBlock) -> bool {
        self.core.cache.has(block)
    }

    /// Begins an operation that touches at most `credits` blocks ([`Journal::max_credits`]). If the running
    /// transaction has no room for them, it is committed first. A thread must stop its handle before it
    /// begins another one.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Aborted`] after a failure; [`Error::Unsupported`] for more credits than
    /// [`Journal::max_credits`].
    pub fn begin(&self, credits: u32) -> Result<Handle<'_>> {
        Handle::begin(&self.core, credits)
    }

    /// The most credits that one operation may have: about half of the log; unlimited without a log.
    pub fn max_credits(&self) -> u32 {
        let limits = self.core.gate.limits();
        if limits.soft {
            u32::MAX
        } else {
            u32::try_from(limits.most).unwrap_or(u32::MAX)
        }
    }

    /// Makes everything durable that was done before the call: all metadata changes, and all data written to
    /// the device. A thread that has a handle must not call it: the commit would wait for that handle.
    ///
    /// # Errors
    /// [`Error::Aborted`] permanently after a metadata write or a flush failed, or an operation ended
    /// half-done.
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// Makes the transaction `tid` durable, and all data written to the device. As [`Journal::sync`], but
    /// does not necessarily commit later transactions.
    ///
    /// # Errors
    /// As [`Journal::sync`].
    pub fn sync_through(&self, tid: Tid) -> Result<()> {
        self.core.sync_through(tid)
    }

    /// Commits the running transaction if it has changes. A thread that has a handle must not call it.
    ///
    /// # Errors
    /// As [`Journal::sync`].
    pub fn commit(&self) -> Result<()> {
        if self.core.read_only {
            return Ok(());
        }
        self.core.commit(self.core.gate.tid())
    }

    /// Sets a callback that the journal's thread runs after commits; commits in quick succession share one
    /// call. Only the first callback is kept. It may read and may wait for the device. It must not begin a
    /// handle or wait for a commit.
    pub fn after_commits(&self, after: impl Fn() + Send + Sync + 'static) {
        self.core.signals.set_after_commits(Box::new(after));
    }

    /// Stops managing `block` as metadata, after the transaction that changed it has become durable: the
    /// block is written home, no replay writes it again, and it leaves the cache. No other thread may use the
    /// block during the call.
    ///
    /// # Errors
    /// [`Error::Aborted`] after a failed write; the device then does not hold the block's newest content. If
    /// the device has no room ([`Error::is_full`]), the journal still manages the block.
    pub fn give_up(&self, block: FsBlock) -> Result<()> {
        self.core.checkpoint()?;
        self.core.cache.discard(block);
        Ok(())
    }

    /// The running transaction: changes made from now on belong to it or to a later one.
    pub fn running(&self) -> Tid {
        self.core.gate.tid()
    }

    /// The newest durable transaction. Blocks freed by it or by earlier ones may be reused.
    pub fn committed(&self) -> Tid {
        self.core.committed()
    }

    /// Commits, writes everything home, leaves an empty log and ends the journal's thread. Afterwards the
    /// journal may only be read.
    ///
    /// # Errors
    /// As [`Journal::sync`]; the log then keeps its content.
    pub fn shut_down(&self) -> Result<()> {
        // Not under the lock: it waits for the thread to end.
        let daemon = self.daemon.lock().take();
        drop(daemon);
        self.core.shut_down()
    }

    /// Aborts the journal permanently for a reason found by the layer above.
    pub fn refuse_changes(&self, reason: impl Into<String>) {
        self.core.abort(Abort::Refused(reason.into()));
    }

    /// Runs `change` while no checkpoint writes home. For changes made to home directly after the journal was
    /// aborted, when the last checkpoint may still be in flight. `change` must not use the journal.
    pub fn without_checkpoint_writes<R>(&self, change: impl FnOnce() -> R) -> R {
        match &self.core.log {
            Some(log) => log.without_checkpoint_writes(change),
            None => change(),
        }
    }

    /// Records an error (a positive errno) in the superblock of the on-disk journal, if there is one, to be
    /// found when the journal is next opened.
    ///
    /// # Errors
    /// Device errors.
    pub fn record_error(&self, errno: u32) -> Result<()> {
        match &self.core.log {
            Some(log) => log.record_error(errno),
            None => Ok(()),
        }
    }

    /// Plants a bug, if there is a log.
    ///
    /// # Panics
    /// Without debug assertions.
    #[doc(hidden)]
    pub fn plant(&self, bug: Planted) {
        if let Some(log) = &self.core.log {
            log.bug.plant(bug);
        }
    }

    /// Whether this bug is planted.
    #[doc(hidden)]
    pub fn has_bug(&self, bug: Planted) -> bool {
        self.core.log.as_ref().is_some_and(|log| log.bug.is(bug))
    }

    /// Why the journal refuses changes; `None` if it accepts them.
    pub fn aborted(&self) -> Option<Arc<Abort>> {
        self.core.aborted().cloned()
    }

    /// Bytes of metadata that are not home yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.core.cache.pinned_bytes()
    }

    /// Counts since the journal was opened.
    pub fn counts(&self) -> Counts {
        self.core.counts()
    }

    /// The current state.
    pub fn status(&self) -> Status {
        Status {
            aborted: self.aborted(),
            read_only: self.core.read_only,
            resident_bytes: self.core.cache.resident_bytes(),
            dirty_bytes: self.dirty_bytes(),
            committed: self.committed(),
            running: self.running(),
            running_age: self.core.gate.since().map(|since| since.elapsed()),
            full: self.core.is_full(),
            log: self.core.log.as_ref().map(Log::usage),
            credit_overruns: self.core.credit_overruns.load(Ordering::Relaxed),
        }
    }
}

fn check_block_bytes(disk: &Disk, block_bytes: u32) -> Result<()> {
    if !block_bytes.is_power_of_two() || !(1024..=65536).contains(&block_bytes) {
        return Err(Error::Caller(
            "the block size is not a power of two from 1 KiB to 64 KiB",
        ));
    }
    let logical_bytes = disk.limits().logical_block_bytes;
    if block_bytes < logical_bytes {
        return Err(Error::Unsupported(format!(
            "blocks of {block_bytes} bytes on a device with logical blocks of {logical_bytes}"
        )));
    }
    Ok(())
}
