//! [`Fs`], an open volume: what is known of it for as long as it is open, and its superblock.
//!
//! Invariants:
//! - The geometry never changes while the volume is open.
//! - The superblock's bytes in memory are what the disk holds, or newer; free counts enter them when it is written.
//! - Only the primary superblock is written, as the kernel does; the backups stay as `mke2fs` or `e2fsck` left them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};
use throughline_block::Disk;
use throughline_extfmt::features::{Compat, Incompat};
use throughline_extfmt::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, State};
use throughline_extfmt::time::Timestamp;
use throughline_extfmt::{Corrupt as FormatCorrupt, FsBlock, Geometry, Superblock};
use throughline_fileio::PageCache;
use throughline_journal::{Block, Journal};
use zerocopy::IntoBytes;

use crate::balloc::Balloc;
use crate::dir::HashRules;
use crate::error::{Error, Reason, Result};
use crate::groups::Groups;
use crate::handle::Handle;
use crate::ialloc::Ialloc;
use crate::inode::InodeTable;
use crate::lock_order::{Held, Rank, locked};
use crate::mmp::MmpGuard;
use crate::orphan::Orphans;

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
    pub(crate) mmp: OnceLock<MmpGuard>,
    /// Something changed since the superblock was last written.
    pub(crate) changed: AtomicBool,
    pub(crate) life: Life,
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
    /// Damage was found while writing: `s_state` says so from now on.
    pub(crate) error_found: AtomicBool,
    /// Closing is done; dropping has nothing left to do.
    pub(crate) closed: AtomicBool,
}

impl Fs {
    /// Begins a change of metadata of up to `credits` blocks.
    ///
    /// # Errors
    /// `ReadOnly` where the volume was opened so, `Unsupported` with the reason where it can only be read, and what the
    /// journal says.
    pub(crate) fn begin(&self, credits: u32) -> Result<Handle<'_>> {
        self.check_writable()?;
        self.check_mmp()?;
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Relaxed);
        }
        Handle::begin(&self.journal, credits)
    }

    /// Credits that one step of a long operation asks for, at most: half of what the journal gives a handle, so that others
    /// find room beside it.
    pub(crate) fn step_credits(&self) -> u32 {
        (self.journal.max_credits() / 2).min(MOST_STEP_CREDITS)
    }

    /// Refuses where nothing may be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match &self.access {
            Access::Write => Ok(()),
            Access::Read => Err(Reason::ReadOnly.into()),
            Access::Refused(why) => Err(Error::Unsupported(format!("writing: {why}"))),
        }
    }

    /// Whether the volume can only be read.
    pub fn is_read_only(&self) -> bool {
        self.access != Access::Write
    }

    /// Why a volume that was to be written can only be read.
    pub fn read_only_reason(&self) -> Option<&str> {
        match &self.access {
            Access::Refused(why) => Some(why),
            _ => None,
        }
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
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
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
        self.check_bounds(block)?;
        Ok(self.journal.read_checked(block, check)?)
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
        self.put_counts(&mut sb);
        sb.set_wtime(self.now().seconds.max(0).cast_unsigned());
        let written = self.disk.counters().bytes(throughline_device::Op::Write) / 1024;
        sb.s_kbytes_written
            .set(self.life.kbytes_at_open.saturating_add(written));
        if self.life.error_found.load(Ordering::Relaxed) {
            let state = sb.state() | State::ERROR;
            sb.set_state(state);
        }
        sb.update_checksum();
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

    fn put_counts(&self, sb: &mut Superblock) {
        if self.access == Access::Write {
            sb.set_free_blocks_count(self.balloc.free_on_disk());
            sb.s_free_inodes_count.set(self.ialloc.free_inodes());
        }
    }

    /// Remembers damage that was found while changing the volume: `s_state` asks for a check from the next sync on.
    pub(crate) fn note_damage<T>(&self, result: Result<T>) -> Result<T> {
        if matches!(result, Err(Error::Corrupt(_))) && self.access == Access::Write {
            self.life.error_found.store(true, Ordering::Relaxed);
            self.changed.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Every change so far is on the disk when this returns: data that is cached, metadata, the superblock's counts.
    ///
    /// # Errors
    /// What the device says, again at every call until it can be done. Where that was about metadata, the volume takes no
    /// more changes.
    pub fn sync(&self) -> Result<()> {
        if self.access != Access::Write {
            return Ok(());
        }
        let flushed = self.cache.flush_all();
        self.sync_metadata()?;
        Ok(flushed?)
    }

    /// Every change of metadata so far is on the disk when this returns, and all data that was written to the device.
    pub(crate) fn sync_metadata(&self) -> Result<()> {
        if self.access != Access::Write {
            return Ok(());
        }
        self.check_mmp()?;
        if self.changed.swap(false, Ordering::Relaxed) {
            let result = self.write_super(|_| ());
            if result.is_err() {
                self.changed.store(true, Ordering::Relaxed);
            }
            result?;
        }
        Ok(self.journal.sync()?)
    }

    /// Writes the superblock in a transaction of its own.
    pub(crate) fn write_super(&self, edit: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut h = Handle::begin(&self.journal, 1)?;
        self.update_super(&mut h, edit)?;
        h.stop()
    }

    /// With a journal: says in the superblock, past the journal, whether the journal has to be replayed. What was done
    /// before is durable before, and this when it returns.
    pub(crate) fn mark_recovery(&self, needed: bool) -> Result<()> {
        if !self.geo.compat.contains(Compat::HAS_JOURNAL) {
            return Ok(());
        }
        let mut sb = locked(Rank::Super, 0, || self.superblock.lock());
        let mut incompat = sb.incompat();
        incompat.set(Incompat::RECOVER, needed);
        sb.s_feature_incompat.set(incompat.bits());
        sb.update_checksum();
        let unit = u64::from(self.disk.limits().logical_block_bytes.max(1));
        let start = SUPERBLOCK_OFFSET - SUPERBLOCK_OFFSET % unit;
        let end = (SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64).next_multiple_of(unit);
        let mut bytes = vec![0; (end - start) as usize];
        self.disk.read_at(start, &mut bytes)?;
        let at = (SUPERBLOCK_OFFSET - start) as usize;
        bytes[at..at + SUPERBLOCK_BYTES].copy_from_slice(sb.as_bytes());
        self.disk.flush()?;
        Ok(self.disk.write_at(start, &bytes, true)?)
    }

    fn check_mmp(&self) -> Result<()> {
        self.mmp.get().map_or(Ok(()), MmpGuard::check)
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
        self.cache.close();
        result
    }

    fn finish(&self) -> Result<()> {
        if self.access != Access::Write {
            return Ok(());
        }
        let result = self.sync().and_then(|()| {
            // In this order, so that the mark of a clean volume never reaches the disk before what it promises.
            self.write_super(|sb| {
                let mut state = self.life.state_at_open;
                state.set(
                    State::ERROR,
                    state.contains(State::ERROR) || sb.state().contains(State::ERROR),
                );
                sb.set_state(state);
                self.orphans.leave(sb);
            })?;
            self.journal.shut_down()?;
            self.mark_recovery(false)
        });
        let released = self.mmp.get().map_or(Ok(()), MmpGuard::release);
        result.and(released)
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
