//! [`Base`], the lowest layer of an open volume: its device, journal and geometry, and whether it may be
//! changed.
//!
//! All layers above read metadata blocks and begin changes through it. Groups, inodes and names are unknown
//! here.
//!
//! Invariants:
//! - The geometry never changes while the volume is open.
//! - The superblock's bytes in memory are the same as on the disk, or newer; free counts are entered when it is
//!   written ([`crate::Alloc`]).
//! - No change begins on a volume that is read-only, was taken down, or has stopped after an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use throughline_block::Disk;
use throughline_extfmt::features::Compat;
use throughline_extfmt::superblock::{OnError, SUPERBLOCK_OFFSET, State};
use throughline_extfmt::time::Timestamp;
use throughline_extfmt::{Corrupt as FormatCorrupt, FsBlock, Geometry, InodeNumber, Superblock};
use throughline_journal::{Abort, Block, Journal, SharedClock};

use crate::damage::Damage;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::mmp::MmpGuard;

/// Credits that a step of a long operation makes use of.
const MOST_STEP_CREDITS: u32 = 512;

/// The lowest layer of an open volume: its device, its journal, its shape, and whether it may be changed. Reached
/// through [`crate::Fs`], as all layers are.
pub struct Base {
    pub(crate) disk: Arc<Disk>,
    pub(crate) journal: Journal,
    pub(crate) geo: Geometry,
    pub(crate) access: Access,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) mmp: Option<MmpGuard>,
    /// Something changed since the superblock was last written.
    pub(crate) changed: AtomicBool,
    pub(crate) damage: Damage,
    pub(crate) life: Life,
    pub(crate) settings: Settings,
    /// The source of all times that are written.
    pub(crate) clock: SharedClock,
}

/// What whoever opened the volume chose, as far as it matters afterwards.
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
    /// It may.
    Write,
    /// The caller asked to read only.
    Read,
    /// The caller asked to write; the volume only lets itself be read, for the reason given.
    Refused(String),
}

/// The state of the volume between open and close, and what closing needs to know about opening.
#[derive(Debug)]
pub(crate) struct Life {
    /// `s_state` when the volume was opened.
    pub(crate) state_at_open: State,
    /// `s_kbytes_written` when the volume was opened.
    pub(crate) kbytes_at_open: u64,
    /// Closing is done; dropping has nothing left to do.
    pub(crate) closed: AtomicBool,
    /// It was opened for writing, and is closed for that: it goes on for reading.
    pub(crate) written: AtomicBool,
    /// It is being taken down: no change begins.
    pub(crate) going: AtomicBool,
    /// It was taken down.
    pub(crate) down: AtomicBool,
}

impl Life {
    /// Of a volume that is being opened.
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

impl Base {
    /// Begins a change of metadata of up to `credits` blocks.
    ///
    /// # Errors
    /// `ReadOnly` where the volume was opened so, `Unsupported` with the reason where it can only be read, and what the
    /// journal says.
    pub(crate) fn begin(&self, credits: u32) -> Result<Handle<'_>> {
        self.check_staying()?;
        self.check_writable()?;
        self.check_mmp()?;
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Relaxed);
        }
        Handle::begin(&self.journal, credits).map_err(|error| {
            self.note_stop();
            // It may have been taken down since it was asked above.
            self.check_staying().err().unwrap_or(error)
        })
    }

    /// Credits that one step of a long operation asks for, at most: half of what the journal gives a handle, so that others
    /// find room beside it.
    pub(crate) fn step_credits(&self) -> u32 {
        (self.journal.max_credits() / 2).min(MOST_STEP_CREDITS)
    }

    /// Refuses where nothing may be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_up()?;
        match &self.access {
            Access::Write if self.life.written.load(Ordering::Acquire) => {
                Err(Reason::ReadOnly.into())
            }
            Access::Write => self
                .stopped()
                .map_or(Ok(()), |why| Err(Error::Stopped(why))),
            Access::Read => Err(Reason::ReadOnly.into()),
            Access::Refused(why) => Err(Error::Unsupported(format!("writing: {why}"))),
        }
    }

    /// Whether the volume can only be read.
    pub fn is_read_only(&self) -> bool {
        self.access != Access::Write || self.life.written.load(Ordering::Acquire)
    }

    /// Whether nothing was or will be written while it is open: what is there is as it was found.
    pub(crate) fn is_as_found(&self) -> bool {
        self.access != Access::Write
    }

    /// Why a volume that was to be written can only be read.
    pub fn read_only_reason(&self) -> Option<&str> {
        match &self.access {
            Access::Refused(why) => Some(why),
            _ => None,
        }
    }

    /// Why the volume, which was opened for writing, takes no more changes; `None` while it does.
    pub fn stopped(&self) -> Option<Arc<Abort>> {
        self.journal.aborted()
    }

    /// Whether changes go through a journal on the disk.
    pub(crate) fn has_log(&self) -> bool {
        self.geo.compat.contains(Compat::HAS_JOURNAL)
    }

    /// A change of metadata is committed after this time at the latest.
    pub fn commit_interval(&self) -> Duration {
        self.settings.commit_interval
    }

    /// The shape of the volume and its features.
    pub fn geometry(&self) -> &Geometry {
        &self.geo
    }

    /// The device below.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Bytes of a block.
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

    /// A metadata block as it is now.
    ///
    /// # Errors
    /// `Corrupt` for a block outside the volume; what the device says.
    pub(crate) fn read(&self, block: FsBlock) -> Result<Block> {
        self.check_up()?;
        self.check_bounds(block)?;
        Ok(self.journal.read(block)?)
    }

    /// A metadata block as it is now; `check` runs once after each load of it from the disk.
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

    /// As [`Base::read_checked`], of a block that belongs to that inode: damage is noted as the inode's.
    ///
    /// # Errors
    /// As there.
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

    /// The block of the primary superblock, and where in it.
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

    /// Gives the journal a bug.
    #[cfg(feature = "planted")]
    #[doc(hidden)]
    pub fn plant(&self, bug: throughline_journal::Planted) {
        self.journal.plant(bug);
    }

    /// Runs a change in a transaction. Where it answers a reason of the caller's, it has left everything consistent.
    pub(crate) fn transact<R>(
        &self,
        credits: u32,
        change: impl FnOnce(&mut Handle<'_>) -> Result<R>,
    ) -> Result<R> {
        let mut h = self.begin(credits)?;
        let result = self.note_damage(change(&mut h));
        match &result {
            Ok(_) | Err(Error::Caller(_) | Error::Unsupported(_)) => h.stop()?,
            // Dropped: half of a change is nothing to go on with.
            Err(_) => {}
        }
        result
    }

    /// Whether it was taken down.
    pub fn is_down(&self) -> bool {
        self.life.down.load(Ordering::Acquire)
    }

    /// Refuses a change where it is being taken down.
    pub(crate) fn check_staying(&self) -> Result<()> {
        match self.life.going.load(Ordering::Acquire) {
            true => Err(Error::Down),
            false => Ok(()),
        }
    }

    /// Refuses where it was taken down.
    pub(crate) fn check_up(&self) -> Result<()> {
        match self.is_down() {
            true => Err(Error::Down),
            false => Ok(()),
        }
    }
}
