//! [`Base`], the lowest layer of an open volume: its device, journal and geometry, and whether it may be
//! changed.
//!
//! All layers above read metadata blocks and begin changes through it. It does not depend on groups, inodes
//! or names.
//!
//! Invariants:
//! - The geometry never changes while the volume is open.
//! - The superblock in memory is the same as on disk, or newer. Its free counts are filled in when it is
//!   written ([`crate::Alloc`]).
//! - No change begins on a volume that is read-only, was taken down, or has stopped after an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use throughline_block::Disk;
use throughline_extfmt::features::Compat;
use throughline_extfmt::superblock::{OnError, SUPERBLOCK_OFFSET, State};
use throughline_extfmt::time::Timestamp;
use throughline_extfmt::{Corrupt as FormatCorrupt, FsBlock, Geometry, InodeNumber, Superblock};
use throughline_journal::{Abort, Block, Journal, SharedClock};
use throughline_locks::Mutex;

use crate::damage::Damage;
use crate::error::{Error, Reason, Result};
use crate::external::External;
use crate::given_up::{self, GivenUp};
use crate::handle::Handle;
use crate::mmp::MmpGuard;
use crate::primary;
use crate::quota::Quotas;
use crate::sums::Sums;

/// Upper limit on the credits of one step of a long operation.
const MAX_STEP_CREDITS: u32 = 512;

/// The lowest layer of an open volume: its device, journal and geometry, and whether it may be changed.
/// Reached through [`crate::Fs`], as all layers are.
pub struct Base {
    pub(crate) disk: Arc<Disk>,
    pub(crate) journal: Journal,
    /// The journal, if it is on another device that was named.
    pub(crate) external: Option<External>,
    pub(crate) geo: Geometry,
    pub(crate) access: Access,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) mmp: Option<MmpGuard>,
    /// Whether anything changed since the superblock was last written.
    pub(crate) changed: AtomicBool,
    pub(crate) damage: Damage,
    pub(crate) given_up: GivenUp,
    pub(crate) life: Life,
    pub(crate) settings: Settings,
    pub(crate) sums: Sums,
    /// What users, groups and projects use.
    pub(crate) quotas: Quotas,
    /// Source of all timestamps that are written.
    pub(crate) clock: SharedClock,
}

/// Options that the volume was opened with, as far as they matter afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// See [`crate::OpenOptions::commit_interval`].
    pub(crate) commit_interval: Duration,
    /// See [`crate::OpenOptions::on_error`].
    pub(crate) on_error: Option<OnError>,
}

/// Whether the volume may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Opened for writing.
    Write,
    /// Opened read-only by the caller.
    Read,
    /// Opened for writing by the caller, but read-only for the reason given.
    Refused(String),
}

/// The stages of an open volume, and the values from opening that closing needs.
#[derive(Debug)]
pub(crate) struct Life {
    /// `s_state` when the volume was opened.
    pub(crate) state_at_open: State,
    /// `s_kbytes_written` when the volume was opened.
    pub(crate) kbytes_at_open: u64,
    /// The close is complete; drop has nothing left to do.
    pub(crate) closed: AtomicBool,
    /// Opened for writing, and now closed for writing; reading continues.
    pub(crate) written: AtomicBool,
    /// The volume is being taken down ([`crate::Fs::take_down`]): no change begins.
    pub(crate) going: AtomicBool,
    /// The volume was taken down.
    pub(crate) down: AtomicBool,
}

impl Life {
    /// The state of a volume that is being opened.
    pub(crate) fn new(sb: &Superblock) -> Self {
        Self {
            state_at_open: sb.state(),
            kbytes_at_open: sb.s_kbytes_written.get(),
            closed: AtomicBool::new(false),
            written: AtomicBool::new(false),
            going: AtomicBool::new(false),
            down: AtomicBool::new(false),
        }
    }
}

/// Changes the superblock in place, durably ([`primary::edit`]), by the one in memory. No checkpoint writes
/// meanwhile. The next transaction with the superblock keeps the checksum that it has now.
///
/// # Errors
/// Device errors.
pub(crate) fn edit_primary(
    base: &Base,
    edit: impl FnOnce(&mut Superblock, &Superblock),
) -> Result<()> {
    let mut known = base.superblock.lock();
    let checksum = base
        .journal
        .without_checkpoint_writes(|| primary::edit(&base.disk, |home| edit(home, &known)))?;
    known.s_checksum = checksum;
    Ok(())
}

impl Base {
    /// The length of the volume's device, in bytes; with an external journal, up to the volume's end.
    pub fn device_bytes(&self) -> u64 {
        match &self.external {
            Some(_) => self.geo.blocks.saturating_mul(self.geo.block_bytes.into()),
            None => self.disk.len_bytes(),
        }
    }

    /// Begins a metadata change of up to `credits` blocks.
    ///
    /// # Errors
    /// `ReadOnly` if the volume was opened read-only; `Unsupported`, with the reason, if it cannot be
    /// written; `Stopped`, `Down`; errors of the journal.
    pub(crate) fn begin(&self, credits: u32) -> Result<Handle<'_>> {
        self.check_staying()?;
        self.check_writable()?;
        self.check_mmp()?;
        given_up::finish(self)?;
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Relaxed);
        }
        Handle::begin(&self.journal, credits, self.quotas.credits()).map_err(|error| {
            self.note_stop();
            // The volume may have been taken down since the check above.
            self.check_staying().err().unwrap_or(error)
        })
    }

    /// Maximum credits for one step of a long operation: at most half of the journal's limit per handle, to
    /// leave room for other handles.
    pub(crate) fn step_credits(&self) -> u32 {
        (self.max_credits() / 2).min(MAX_STEP_CREDITS)
    }

    /// The most credits that a handle can have.
    pub(crate) fn max_credits(&self) -> u32 {
        let most = self.journal.max_credits();
        most.saturating_sub(self.quotas.credits())
    }

    /// Fails if the volume cannot be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_up()?;
        match &self.access {
            Access::Write if self.life.written.load(Ordering::Acquire) => {
                Err(Reason::ReadOnly.into())
            }
            Access::Write => self.check_going_on(),
            Access::Read => Err(Reason::ReadOnly.into()),
            Access::Refused(why) => Err(Error::Unsupported(format!("writing: {why}"))),
        }
    }

    /// Fails if changes were stopped before: for calls that commit, at their beginning. A failure after that
    /// is one of their own commit, and they return it as it is.
    ///
    /// # Errors
    /// `Stopped`.
    pub(crate) fn check_going_on(&self) -> Result<()> {
        self.stopped()
            .map_or(Ok(()), |why| Err(Error::Stopped(why)))
    }

    /// Whether the volume is read-only.
    pub fn is_read_only(&self) -> bool {
        self.access != Access::Write || self.life.written.load(Ordering::Acquire)
    }

    /// Whether nothing has been or will be written while the volume is open.
    pub(crate) fn is_as_found(&self) -> bool {
        self.access != Access::Write
    }

    /// Why a volume that the caller asked to open for writing can only be read; `None` otherwise.
    pub fn read_only_reason(&self) -> Option<&str> {
        match &self.access {
            Access::Refused(why) => Some(why),
            _ => None,
        }
    }

    /// Why a volume opened for writing has stopped taking changes; `None` if it has not.
    pub fn stopped(&self) -> Option<Arc<Abort>> {
        self.journal.aborted()
    }

    /// Whether changes go through an on-disk journal.
    pub(crate) fn has_log(&self) -> bool {
        self.geo.compat.contains(Compat::HAS_JOURNAL)
    }

    /// The longest time before a metadata change is committed.
    pub fn commit_interval(&self) -> Duration {
        self.settings.commit_interval
    }

    /// The volume's geometry and features.
    pub fn geometry(&self) -> &Geometry {
        &self.geo
    }

    /// The underlying device.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Block size in bytes.
    pub(crate) fn block_bytes(&self) -> u32 {
        self.geo.block_bytes
    }

    /// The current time.
    pub(crate) fn now(&self) -> Timestamp {
        let since = self.clock.since_epoch();
        Timestamp {
            seconds: since.as_secs().cast_signed(),
            nanoseconds: since.subsec_nanos(),
        }
    }

    /// The current contents of a metadata block.
    ///
    /// # Errors
    /// `Corrupt` for a block outside the volume; device errors.
    pub(crate) fn read(&self, block: FsBlock) -> Result<Block> {
        self.check_up()?;
        self.check_bounds(block)?;
        Ok(self.journal.read(block)?)
    }

    /// The current contents of a metadata block. `check` runs once each time it is loaded from disk.
    ///
    /// # Errors
    /// As [`Base::read`]; `Corrupt` from the check.
    pub(crate) fn read_checked(
        &self,
        block: FsBlock,
        check: impl FnOnce(&[u8]) -> core::result::Result<(), FormatCorrupt>,
    ) -> Result<Block> {
        self.check_up()?;
        self.check_bounds(block)?;
        let found = self.journal.read_checked(block, check);
        self.note_damage(found.map_err(Error::from))
    }

    /// As [`Base::read_checked`], for a block that belongs to `ino`: damage is recorded as the inode's.
    ///
    /// # Errors
    /// As [`Base::read_checked`].
    pub(crate) fn read_checked_of(
        &self,
        ino: InodeNumber,
        block: FsBlock,
        check: impl FnOnce(&[u8]) -> core::result::Result<(), FormatCorrupt>,
    ) -> Result<Block> {
        self.check_up()?;
        let found = self
            .check_bounds(block)
            .and_then(|()| Ok(self.journal.read_checked(block, check)?));
        self.note_damage(found.map_err(|e| e.in_inode(ino).in_block(block)))
    }

    /// The current contents of a metadata block, for using its part at `index`. `check` runs once for each
    /// part and each time the block is loaded from disk; parts changed with one of [`Base::sums`] count as
    /// checked.
    ///
    /// # Errors
    /// As [`Base::read`]; `Corrupt` from the check.
    pub(crate) fn read_part(
        &self,
        block: FsBlock,
        index: u32,
        check: impl FnOnce(&[u8]) -> core::result::Result<(), FormatCorrupt>,
    ) -> Result<Block> {
        self.check_up()?;
        self.check_bounds(block)?;
        Ok(self.journal.read_part(block, index, check)?)
    }

    fn check_bounds(&self, block: FsBlock) -> Result<()> {
        if block.0 < self.geo.blocks {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "points past the volume's {} blocks",
            self.geo.blocks
        ))
        .in_block(block))
    }

    /// The block of the primary superblock, and the offset in it.
    pub(crate) fn superblock_place(&self) -> (FsBlock, usize) {
        let bytes = u64::from(self.geo.block_bytes);
        (
            FsBlock(SUPERBLOCK_OFFSET / bytes),
            (SUPERBLOCK_OFFSET % bytes) as usize,
        )
    }

    pub(crate) fn check_mmp(&self) -> Result<()> {
        self.mmp.as_ref().map_or(Ok(()), MmpGuard::check)
    }

    /// Plants a bug in the journal.
    ///
    /// # Panics
    /// Without debug assertions.
    #[doc(hidden)]
    pub fn plant(&self, bug: throughline_journal::Planted) {
        self.journal.plant(bug);
    }

    /// Runs a change in a transaction. A change that fails with `Caller` or `Unsupported` must have left
    /// everything consistent.
    pub(crate) fn transact<R>(
        &self,
        credits: u32,
        change: impl FnOnce(&mut Handle<'_>) -> Result<R>,
    ) -> Result<R> {
        let mut h = self.begin(credits)?;
        let result = self.note_damage(change(&mut h));
        match &result {
            Ok(_) | Err(Error::Caller(_) | Error::Unsupported(_)) => h.stop()?,
            // Dropped: a half-done change cannot be continued.
            Err(_) => {}
        }
        result
    }

    /// Whether the volume was taken down.
    pub fn is_down(&self) -> bool {
        self.life.down.load(Ordering::Acquire)
    }

    /// Fails if the volume is being taken down.
    pub(crate) fn check_staying(&self) -> Result<()> {
        match self.life.going.load(Ordering::Acquire) {
            true => Err(Error::Down),
            false => Ok(()),
        }
    }

    /// Fails if the volume was taken down.
    pub(crate) fn check_up(&self) -> Result<()> {
        match self.is_down() {
            true => Err(Error::Down),
            false => Ok(()),
        }
    }
}
