//! [`Fs`], an open volume: the top layer, which syncs and closes the volume and stops its threads.
//!
//! All other operations are methods of the layers below ([`crate::Names`] and the layers that it owns).
//!
//! Invariants:
//! - A volume is marked clean only after everything else is on the disk.
//! - The volume's threads hold a reference to it only while they work; closing the volume stops them.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline_extfmt::features::Incompat;
use throughline_extfmt::superblock::State;
use throughline_fileio as fileio;

use crate::base;
use crate::emptied;
use crate::error::Result;
use crate::inode::Inode;
use crate::mmp::MmpGuard;
use crate::names::Names;
use crate::open::Recovery;
use crate::open_file::OpenFile;
use crate::orphan;
use crate::quota::tree;

/// An open volume, shared by all threads. [`Fs::close`] or [`Fs::shut_down`] closes it and reports errors;
/// drop closes it and can only log them.
pub struct Fs {
    /// What recovery did when the volume was opened.
    pub(crate) recovery: Recovery,
    pub(crate) names: Names,
}

impl Deref for Fs {
    type Target = Names;

    fn deref(&self) -> &Names {
        &self.names
    }
}

impl Fs {
    /// From now on, blocks freed by commits are discarded before they are reused, by the journal's thread. No
    /// effect if the device cannot discard, or if the volume is read-only.
    pub fn discard_freed(self: &Arc<Self>) {
        if self.is_read_only() || !self.disk.limits().discard {
            return;
        }
        self.balloc.set_discards();
        let fs = Arc::downgrade(self);
        self.journal.after_commits(move || {
            if let Some(fs) = fs.upgrade() {
                fs.trim_freed();
            }
        });
    }

    /// Defers truncations where that protects rewritten files. Needs the shared reference for the volume's
    /// own thread.
    pub fn enable_deferred_truncation(self: &Arc<Self>) {
        let me = Arc::downgrade(self);
        // The thread keeps the volume open while it runs.
        self.emptied.set_thread(Arc::new(move || {
            if let Some(fs) = me.upgrade() {
                emptied::run(&fs);
            }
        }));
    }

    /// Opens a file for buffered I/O.
    ///
    /// # Errors
    /// `IsDir`; `Invalid` for other inodes that are not regular files; `Corrupt` for an invalid size.
    pub fn open_file(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<OpenFile> {
        OpenFile::new(&self.data, Arc::clone(self) as _, inode)
    }

    /// What recovery did when the volume was opened for writing.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Makes every change so far durable: cached data, metadata, the superblock's counts.
    ///
    /// # Errors
    /// Device errors, returned by every call until the sync succeeds. After a failed metadata write, the
    /// volume refuses further changes, and later calls fail with `Stopped`.
    pub fn sync(&self) -> Result<()> {
        self.check_up()?;
        if self.is_read_only() {
            return Ok(());
        }
        let going_on = self.check_going_on();
        let mut flushed = self.cache.flush_all();
        if matches!(flushed, Err(fileio::Error::Caller(fileio::Reason::NoSpace))) {
            // What was written back may have needed less space than was reserved for it.
            flushed = self.cache.flush_all();
        }
        let emptied = self.finish_emptied();
        going_on?;
        tree::place_all(self)?;
        self.store_kept_times()?;
        self.sync_metadata()?;
        flushed?;
        emptied
    }

    /// Closes the volume: writes everything to the disk, and marks the volume clean if it was clean when it
    /// was opened.
    ///
    /// # Errors
    /// As [`Fs::shut_down`].
    pub fn close(self) -> Result<()> {
        self.shut_down()
    }

    /// As [`Fs::close`], for a shared volume: open files hold it, and so does write-back while they are
    /// dirty. Stops the volume's threads. Nothing may be changed afterwards. A second call does nothing.
    ///
    /// # Errors
    /// Device errors. The volume then stays marked as not cleanly closed, and data that could not be written
    /// is lost.
    pub fn shut_down(&self) -> Result<()> {
        if self.life.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let result = self.finish().and(self.release_mmp());
        self.emptied.stop();
        self.cache.close();
        result
    }

    /// Closes the volume for writing: as [`Fs::close`], but reading continues. No change may be in progress;
    /// later changes fail. This cannot be undone. A second call does nothing.
    ///
    /// # Errors
    /// As [`Fs::shut_down`].
    pub fn end_writing(&self) -> Result<()> {
        self.check_up()?;
        if self.is_read_only() {
            return Ok(());
        }
        self.check_going_on()?;
        // If it fails, changes go on, and other machines must stay away.
        self.finish()?;
        self.life.written.store(true, Ordering::Release);
        self.release_mmp()
    }

    /// Closes the volume without writing anything or marking it clean.
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
            .and_then(|()| crate::reclaim::end_all(self))
            .and_then(|()| tree::remove_idle(self))
            .and_then(|()| self.mark_closed());
        if result.is_ok() {
            // Discards what the last commits freed, if discarding is enabled.
            self.trim_freed();
        }
        if result.is_err() {
            self.note_stop();
        }
        result
    }

    fn release_mmp(&self) -> Result<()> {
        self.mmp.as_ref().map_or(Ok(()), MmpGuard::release)
    }

    /// In this order, so that a clean mark never reaches the disk early: first the superblock in the last
    /// transaction; then everything is written home and the journal is emptied; then, bypassing the journal,
    /// `needs_recovery` is cleared or the volume is marked clean.
    fn mark_closed(&self) -> Result<()> {
        let no_orphans = self.orphans.is_file_empty();
        self.write_super(|sb| {
            if no_orphans {
                orphan::set_present(sb, false);
            }
        })?;
        self.journal.shut_down()?;
        let closed = {
            let mut sb = self.superblock.lock();
            let found = sb.state() & State::ERROR;
            sb.set_state(self.life.state_at_open | found);
            let incompat = sb.incompat() - Incompat::RECOVER;
            if self.has_log() {
                sb.s_feature_incompat.set(incompat.bits());
            }
            *sb
        };
        base::edit_primary(self, |home, _| *home = closed)
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        // After a panic, an operation may have ended half-way: the volume stays marked as not clean.
        if std::thread::panicking() {
            return;
        }
        if let Err(error) = self.shut_down() {
            tracing::error!(%error, "closing the volume");
        }
    }
}
