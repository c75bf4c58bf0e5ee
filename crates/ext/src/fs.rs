//! [`Fs`], an open volume: what is known of it for as long as it is open, and its superblock.
//!
//! Invariants:
//! - The geometry never changes while the volume is open.
//! - The superblock's bytes in memory are what the disk holds, or newer; free counts enter them when it is written.
//! - Only the primary superblock is written, as the kernel does; the backups stay as `mke2fs` or `e2fsck` left them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use throughline_block::Disk;
use throughline_extfmt::features::{Compat, Incompat};
use throughline_extfmt::superblock::{OnError, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, State};
use throughline_extfmt::time::Timestamp;
use throughline_extfmt::{Corrupt as FormatCorrupt, FsBlock, Geometry, InodeNumber, Superblock};
use throughline_fileio::PageCache;
use throughline_journal::{Abort, Block, Journal, SharedClock, Tid};
use zerocopy::IntoBytes;

use crate::balloc::Balloc;
use crate::damage::Damage;
use crate::dir::HashRules;
use crate::emptied;
use crate::error::{Error, Reason, Result};
use crate::groups::Groups;
use crate::handle::Handle;
use crate::ialloc::Ialloc;
use crate::inode::InodeTable;
use crate::lock_order::{Held, Rank, locked};
use crate::mmp::MmpGuard;
use crate::open::Recovery;
use crate::orphan::Orphans;
use crate::primary;
use crate::synchronous::Synchronous;
use crate::system::SystemInodes;
use crate::times::Times;
use crate::xattr::Xattrs;

/// Credits that a step of a long operation makes use of.
const MOST_STEP_CREDITS: u32 = 512;

/// An open volume. Shared by all threads; [`Fs::close`] or [`Fs::shut_down`] ends it well, dropping it does its best.
pub struct Fs {
    pub(crate) disk: Arc<Disk>,
    /// Cached data of files.
    pub(crate) cache: Arc<PageCache>,
    pub(crate) journal: Journal,
    pub(crate) geo: Geometry,
    pub(crate) access: Access,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) groups: Groups,
    pub(crate) balloc: Balloc,
    pub(crate) ialloc: Ialloc,
    pub(crate) inodes: InodeTable,
    pub(crate) rename: Mutex<()>,
    pub(crate) hash_rules: HashRules,
    pub(crate) orphans: Orphans,
    pub(crate) xattrs: Xattrs,
    pub(crate) mmp: Option<MmpGuard>,
    /// Something changed since the superblock was last written.
    pub(crate) changed: AtomicBool,
    pub(crate) damage: Damage,
    pub(crate) times: Times,
    pub(crate) synchronous: Synchronous,
    pub(crate) system: SystemInodes,
    /// Files that were emptied.
    pub(crate) emptied: emptied::OfVolume,
    /// What opening it had to mend.
    pub(crate) recovery: Recovery,
    pub(crate) life: Life,
    pub(crate) settings: Settings,
    /// What time is written.
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

/// What closing has to know of opening.
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

impl Fs {
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

    /// What opening it for writing had to mend.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
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

    /// The page cache of its files.
    pub fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }

    /// A copy of the superblock, free counts as of now.
    pub fn superblock(&self) -> Superblock {
        let mut copy = *self.superblock.lock();
        self.put_counts(&mut copy);
        copy
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

    /// The lock that a rename takes when it moves a directory or touches two of them: one such rename at a time.
    pub(crate) fn lock_rename(&self) -> Held<MutexGuard<'_, ()>> {
        locked(Rank::Rename, 0, || self.rename.lock())
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
    /// As [`Fs::read`]; `Corrupt` from the check.
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

    /// As [`Fs::read_checked`], of a block that belongs to that inode: damage is noted as the inode's.
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

    /// Changes the superblock inside a handle (1 credit). Free counts and checksum are put in here.
    ///
    /// # Errors
    /// Those of the journal.
    pub(crate) fn update_super(
        &self,
        h: &mut Handle<'_>,
        edit: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        // Held over the buffer's change, so that two writers' bytes arrive in the order of their edits.
        let mut sb = locked(Rank::Super, 0, || self.superblock.lock());
        edit(&mut sb);
        self.stamp(&mut sb);
        let (block, at) = self.superblock_place();
        h.modify(block, |bytes| {
            if let Some(place) = bytes.get_mut(at..at + SUPERBLOCK_BYTES) {
                place.copy_from_slice(sb.as_bytes());
            }
        })
    }

    /// The block of the primary superblock, and where in it.
    pub(crate) fn superblock_place(&self) -> (FsBlock, usize) {
        let bytes = u64::from(self.geo.block_bytes);
        (
            FsBlock(SUPERBLOCK_OFFSET / bytes),
            (SUPERBLOCK_OFFSET % bytes) as usize,
        )
    }

    /// What goes into the superblock whenever it is written.
    pub(crate) fn stamp(&self, sb: &mut Superblock) {
        self.put_counts(sb);
        sb.set_wtime(self.now().seconds.max(0).cast_unsigned());
        let written = self.disk.counters().bytes(throughline_device::Op::Write) / 1024;
        sb.s_kbytes_written
            .set(self.life.kbytes_at_open.saturating_add(written));
        sb.update_checksum();
    }

    fn put_counts(&self, sb: &mut Superblock) {
        if self.access == Access::Write {
            sb.set_free_blocks_count(self.balloc.free_on_disk());
            sb.s_free_inodes_count.set(self.ialloc.free_inodes());
        }
    }

    /// Gives the journal a bug.
    #[cfg(feature = "planted")]
    #[doc(hidden)]
    pub fn plant(&self, bug: throughline_journal::Planted) {
        self.journal.plant(bug);
    }

    /// Every change so far is on the disk when this returns: data that is cached, metadata, the superblock's counts.
    ///
    /// # Errors
    /// What the device says, again at every call until it can be done. Where that was about metadata, the volume takes no
    /// more changes.
    pub fn sync(&self) -> Result<()> {
        self.check_up()?;
        if self.is_read_only() {
            return Ok(());
        }
        let flushed = self.cache.flush_all();
        let emptied = self.finish_emptied();
        self.store_kept_times()?;
        self.sync_metadata()?;
        flushed?;
        emptied
    }

    /// Every change of metadata so far is on the disk when this returns, and all data that was written to the device.
    pub(crate) fn sync_metadata(&self) -> Result<()> {
        self.check_up()?;
        if self.is_read_only() {
            return Ok(());
        }
        self.check_mmp()?;
        let done = self
            .put_superblock()
            .and_then(|()| Ok(self.journal.sync()?));
        done.inspect_err(|_| self.note_stop())
    }

    /// All changes of a transaction and those before are on the disk when this returns, and all data that was written to
    /// the device. Without a journal, so is everything else.
    pub(crate) fn sync_through(&self, tid: Tid) -> Result<()> {
        self.check_up()?;
        if self.is_read_only() {
            return Ok(());
        }
        if !self.has_log() {
            return self.sync_metadata();
        }
        self.check_mmp()?;
        let done = self.journal.sync_through(tid).map_err(Error::from);
        done.inspect_err(|_| self.note_stop())
    }

    /// Puts the superblock into a transaction where it has to go to the disk now: for its counts where there is no journal,
    /// for errors that were found. (With a journal, the counts are made anew after a crash.)
    fn put_superblock(&self) -> Result<()> {
        let errors = self.take_pending_errors();
        let counts = !self.has_log() && self.changed.swap(false, Ordering::Relaxed);
        if !errors && !counts {
            return Ok(());
        }
        self.write_super(|_| ()).inspect_err(|_| {
            self.changed.store(true, Ordering::Relaxed);
            if errors {
                self.set_pending_errors();
            }
        })
    }

    /// Writes the superblock in a transaction of its own.
    pub(crate) fn write_super(&self, edit: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut h = Handle::begin(&self.journal, 1)?;
        self.update_super(&mut h, edit)?;
        h.stop()
    }

    fn check_mmp(&self) -> Result<()> {
        self.mmp.as_ref().map_or(Ok(()), MmpGuard::check)
    }

    /// Closes the volume: everything to the disk, and the volume marked clean if it was when it was opened.
    ///
    /// # Errors
    /// As [`Fs::shut_down`].
    pub fn close(self) -> Result<()> {
        self.shut_down()
    }

    /// As [`Fs::close`], for a volume that is shared: open files hold it, and so does write-back while they are dirty. Its
    /// threads are gone afterwards. Nothing may be changed any more. A second call does nothing.
    ///
    /// # Errors
    /// What the device says; the volume is then left marked as not cleanly closed, and data that could not be written is
    /// lost.
    pub fn shut_down(&self) -> Result<()> {
        if self.life.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let result = self.finish();
        self.emptied.stop();
        self.cache.close();
        result
    }

    /// Closes the volume for writing: as [`Fs::close`], and it can be read on. Nobody may be changing it; a change that
    /// comes later is refused. There is no way back. A second call does nothing.
    ///
    /// # Errors
    /// As [`Fs::shut_down`].
    pub fn end_writing(&self) -> Result<()> {
        self.check_up()?;
        if self.is_read_only() {
            return Ok(());
        }
        if let Some(why) = self.stopped() {
            return Err(Error::Stopped(why));
        }
        self.finish()?;
        self.life.written.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the volume as it is, nothing marked.
    pub(crate) fn abandon(self) {
        self.life.closed.store(true, Ordering::Release);
        self.emptied.stop();
        self.cache.close();
    }

    fn finish(&self) -> Result<()> {
        if self.is_read_only() || self.is_down() {
            return Ok(());
        }
        let result = self
            .sync()
            .and_then(|()| crate::orphan::end_all(self))
            .and_then(|()| self.mark_closed());
        if result.is_ok() {
            // What the last commits freed, where that is wanted.
            self.trim_freed();
        }
        if result.is_err() {
            self.note_stop();
        }
        let released = self.mmp.as_ref().map_or(Ok(()), MmpGuard::release);
        result.and(released)
    }

    /// In this order, so that what says "nothing to be done" never reaches the disk before that is so: the superblock as
    /// the last transaction, everything home and the journal empty, then, past the journal, `needs_recovery` gone or the
    /// mark of a clean volume.
    fn mark_closed(&self) -> Result<()> {
        self.write_super(|sb| self.orphans.leave(sb))?;
        self.journal.shut_down()?;
        let closed = {
            let mut sb = locked(Rank::Super, 0, || self.superblock.lock());
            let found = sb.state() & State::ERROR;
            sb.set_state(self.life.state_at_open | found);
            let incompat = sb.incompat() - Incompat::RECOVER;
            if self.has_log() {
                sb.s_feature_incompat.set(incompat.bits());
            }
            **sb
        };
        primary::edit(&self.disk, |home| *home = closed)
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        // After a panic nobody knows whether an operation ended half-way: the volume stays marked as not clean.
        if std::thread::panicking() {
            return;
        }
        if let Err(error) = self.shut_down() {
            tracing::error!(%error, "closing the volume");
        }
    }
}
