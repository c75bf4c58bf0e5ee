//! Metadata buffers, transactions and recovery.
//!
//! [`Journal`] is the one face for all metadata of a volume: blocks are read through it, changed through the
//! [`Handle`] of an operation, and made durable by [`Journal::sync`]. Without a journal on disk, blocks go home by
//! themselves. [`recovery`] finds what a journal holds that is not home yet, and [`OverlayDevice`] shows an
//! image as it will be after the replay, without touching it.
//!
//! ```text
//!   read ─────────────► cache ◄───── modify, create, forget ── Handle ◄── begin
//!                         │ dirty
//!                         ▼
//!        sync, too many dirty ──► home: ascending, long bios, flush
//! ```
//!
//! Invariants:
//! - Readers hold snapshots ([`Block`]); a change never shows through one.
//! - The memory of the cache is bounded by its [`Budget`]: clean blocks are evicted, and `begin` writes dirty
//!   ones home before there are too many.
//! - The first failed metadata write, and an operation that ended half-way, stop all changes for good: later
//!   [`Journal::begin`] and [`Journal::sync`] return why.
#![forbid(unsafe_code)]

mod buffer;
mod cache;
mod error;
mod handle;
mod home;
mod overlay;
pub mod recovery;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use std::sync::OnceLock;
use throughline_block::Disk;
use throughline_extfmt::{Corrupt, FsBlock};

pub use buffer::Block;
pub use error::{Abort, Error, Result};
pub use handle::Handle;

pub use overlay::OverlayDevice;

use cache::Cache;
use home::Home;

/// What the metadata of a volume may take of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Clean blocks kept, in bytes. More only while they are in use at one moment.
    pub clean_bytes: u64,
    /// Dirty blocks from which on a new operation first writes them home, in bytes. Operations already running
    /// may add theirs.
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
    cache: Cache,
    home: Home,
    budget: Budget,
    read_only: bool,
    aborted: OnceLock<Arc<Abort>>,
    credit_overruns: AtomicU64,
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
    /// Those of them that are not on the device yet.
    pub dirty_bytes: u64,
    /// Blocks that operations touched beyond their credits. Anything but 0 is a bug of the layer above, which a
    /// journal on disk would have to refuse.
    pub credit_overruns: u64,
}

impl Journal {
    /// The metadata of a volume without a journal, in blocks of `block_bytes` from the start of `disk`.
    ///
    /// A device that is read-only gives a journal that is.
    ///
    /// # Errors
    /// [`Error::Caller`] for a block size that is no power of two from 1 to 64 KiB; [`Error::Unsupported`] for one
    /// below the device's logical block.
    pub fn without_journal(disk: Arc<Disk>, block_bytes: u32, budget: Budget) -> Result<Self> {
        let read_only = disk.info().read_only;
        Self::new(disk, block_bytes, budget, read_only)
    }

    /// Metadata for reading only: nothing is ever written.
    ///
    /// # Errors
    /// As [`Journal::without_journal`].
    pub fn read_only(disk: Arc<Disk>, block_bytes: u32, budget: Budget) -> Result<Self> {
        Self::new(disk, block_bytes, budget, true)
    }

    fn new(disk: Arc<Disk>, block_bytes: u32, budget: Budget, read_only: bool) -> Result<Self> {
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
        Ok(Self {
            cache: Cache::new(disk, block_bytes, budget.clean_bytes),
            home: Home::default(),
            budget,
            read_only,
            aborted: OnceLock::new(),
            credit_overruns: AtomicU64::new(0),
        })
    }

    /// The block size, in bytes.
    pub fn block_bytes(&self) -> u32 {
        self.cache.block_bytes()
    }

    /// The disk below.
    pub fn disk(&self) -> &Arc<Disk> {
        self.cache.disk()
    }

    /// A snapshot of `block`, from the cache or the device.
    ///
    /// # Errors
    /// A device error; [`Error::Corrupt`] for a block that lies past the end of the device.
    pub fn read(&self, block: FsBlock) -> Result<Block> {
        self.cache.read(
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
        self.cache.read(block, Some(check))
    }

    /// Reads those of `blocks` that are not cached in one batch of long bios, up to a quarter of the budget.
    /// A hint: it returns no error, whoever reads a block that failed gets it.
    pub fn readahead(&self, blocks: &[FsBlock]) {
        self.cache.readahead(blocks);
    }

    /// Drops `len` blocks from `first` from the cache, changed or not: for blocks that will hold data, which goes
    /// past this cache. After the return nothing of them reaches the device. (Freed metadata is told by
    /// [`Handle::forget`].)
    pub fn discard_cached(&self, first: FsBlock, len: u64) {
        self.cache.discard_range(first, len);
    }

    /// Begins an operation that will touch at most `credits` blocks, writing dirty blocks home first if there are
    /// too many. A thread must not begin a second one before it stopped the first.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], and [`Error::Aborted`] after a failure.
    pub fn begin(&self, credits: u32) -> Result<Handle<'_>> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        self.check_alive()?;
        let dirty_bytes = self.cache.dirty_bytes();
        if dirty_bytes > self.budget.dirty_bytes {
            // One writes while the others go on, until they are twice over the limit.
            let wait = dirty_bytes / 2 > self.budget.dirty_bytes;
            self.latch(self.home.write_back(&self.cache, wait))?;
        }
        Ok(Handle::new(self, credits))
    }

    /// Makes everything durable that was done before the call: all metadata, and whatever data has been written
    /// to the device.
    ///
    /// # Errors
    /// [`Error::Aborted`] now and for ever after a metadata write or a flush failed, or an operation ended
    /// half-way.
    pub fn sync(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.check_alive()?;
        self.latch(self.home.sync(&self.cache))
    }

    /// Stops all changes for good, because the layer above found a reason.
    pub fn refuse_changes(&self, reason: impl Into<String>) {
        self.abort(Abort::Refused(reason.into()));
    }

    /// Why no changes are taken any more, if that is so.
    pub fn aborted(&self) -> Option<Arc<Abort>> {
        self.aborted.get().cloned()
    }

    /// Bytes of metadata that are not on the device yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.cache.dirty_bytes()
    }

    /// How it does.
    pub fn status(&self) -> Status {
        Status {
            aborted: self.aborted(),
            read_only: self.read_only,
            resident_bytes: self.cache.resident_bytes(),
            dirty_bytes: self.cache.dirty_bytes(),
            credit_overruns: self.credit_overruns.load(Ordering::Relaxed),
        }
    }

    fn check_alive(&self) -> Result<()> {
        match self.aborted.get() {
            Some(reason) => Err(Error::Aborted(Arc::clone(reason))),
            None => Ok(()),
        }
    }

    fn latch(&self, written: throughline_block::Result<()>) -> Result<()> {
        if let Err(error) = written {
            self.abort(Abort::Write(error));
        }
        self.check_alive()
    }

    fn abort(&self, reason: Abort) {
        if self.aborted.set(Arc::new(reason)).is_ok()
            && let Some(reason) = self.aborted.get()
        {
            tracing::error!(%reason, "no more changes to the volume");
        }
    }

    fn note_overrun(&self, blocks: usize) {
        self.credit_overruns
            .fetch_add(blocks as u64, Ordering::Relaxed);
    }
}
