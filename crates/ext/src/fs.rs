//! [`Fs`], an open volume: the top layer, which syncs and closes the volume and stops its threads.
//!
//! All other operations are methods of the layers below ([`crate::Names`] and the layers that it owns).
//!
//! Invariants:
//! - A volume is marked clean only after everything else is on the disk.
//! - The volume's threads hold a reference to it only while they work; closing it stops them.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline_extfmt::features::Incompat;
use throughline_extfmt::superblock::State;

use crate::emptied;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::lock_order::{Rank, locked};
use crate::mmp::MmpGuard;
use crate::names::Names;
use crate::open::Recovery;
use crate::open_file::OpenFile;
use crate::primary;

/// An open volume. Shared by all threads; [`Fs::close`] or [`Fs::shut_down`] ends it well, dropping it does its best.
pub struct Fs {
    /// What opening it had to mend.
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
    /// From now on what commits have freed is discarded before anybody gets it again, by the journal's thread. A device
    /// that cannot use that is not told, and neither is one of a volume that can only be read.
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

    /// Has truncations held back where that keeps files whole that are written anew: needs what the volume's own thread can
    /// ask for it.
    pub fn hold_back(self: &Arc<Self>) {
        let me = Arc::downgrade(self);
        // The volume stays open while the thread runs.
        self.emptied.set_thread(Arc::new(move || {
            if let Some(fs) = me.upgrade() {
                emptied::run(&fs);
            }
        }));
    }

    /// Opens a file for buffered I/O.
    ///
    /// # Errors
    /// `IsDir`, `Invalid` for what is not a regular file; `Corrupt` for a size that cannot be.
    pub fn open_file(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<OpenFile> {
        OpenFile::new(&self.data, Arc::clone(self) as _, inode)
    }

    /// What opening it for writing had to mend.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
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
            .and_then(|()| crate::reclaim::end_all(self))
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
