//! Damage and failed writes on a volume: what is recorded, and what follows.
//!
//! - On a volume open for writing, damage is recorded in the superblock (`s_state`, `s_error_count`, the
//!   first and the last error), so that the next `e2fsck` runs a full check. What else follows is chosen by
//!   the opener ([`crate::OpenOptions::on_error`]), or else by the superblock's `s_errors`: `continue` only
//!   records it; `remount-ro` stops all changes, and so does `panic`, since a library must not panic the
//!   machine.
//! - Open for writing or not, each damaged place is logged once, with its inode and block, and counted
//!   ([`Base::damaged_places`]). Reading continues around it.
//! - A failed metadata write, and an operation that ended half-way, stop all changes whatever `s_errors`
//!   says. That is recorded too.
//! - While changes are allowed, the record reaches the disk with the superblock, in a transaction. After they
//!   are stopped, it is written in place on a best-effort basis, bypassing the journal: into the superblock
//!   bytes read from disk, so that nothing uncommitted is written with it.

use std::collections::HashSet;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};

use throughline_extfmt::superblock::{ErrorCode, ErrorRecord, OnError};
use throughline_extfmt::{FsBlock, InodeNumber};
use throughline_journal::Abort;
use throughline_locks::Mutex;

use crate::base::{self, Base};
use crate::error::{Corrupt, Error, Result};

/// The error number that the kernel leaves in a journal that it aborted, whatever the reason.
const EIO: u32 = 5;
/// Most damaged places remembered, so that none is counted twice. Further places are not recorded.
const MAX_PLACES: usize = 4096;

/// What is still to be recorded on disk.
#[derive(Default)]
pub(crate) struct Damage {
    /// The superblock in memory records errors that the one on disk does not.
    pending: AtomicBool,
    /// The superblock in memory records that all changes stopped.
    stop_noted: AtomicBool,
    /// Damaged inodes and blocks.
    places: Mutex<HashSet<(Option<InodeNumber>, Option<FsBlock>)>>,
}

impl Base {
    /// Passes a result through. Records damage in it, and takes the action chosen for errors.
    #[track_caller]
    pub(crate) fn note_damage<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(Error::Corrupt(corrupt)) = &result {
            let is_new = self.count_damage(corrupt);
            if is_new && !self.is_read_only() {
                self.record_damage(corrupt, Location::caller());
            }
        }
        result
    }

    /// As [`Base::note_damage`], for something optional: `None` if it is damaged.
    #[track_caller]
    pub(crate) fn around_damage<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match self.note_damage(result) {
            Ok(value) => Ok(Some(value)),
            Err(Error::Corrupt(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Base::around_damage`], inside a change: if the damage stopped all changes, it is returned as the
    /// error.
    #[track_caller]
    pub(crate) fn change_around_damage<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match self.note_damage(result) {
            Err(Error::Corrupt(_)) if self.stopped().is_none() => Ok(None),
            done => done.map(Some),
        }
    }

    /// Logs and counts a damaged place unless it is known. Returns whether it was new.
    pub fn count_damage(&self, corrupt: &Corrupt) -> bool {
        let mut places = self.damage.places.lock();
        let is_new = places.len() < MAX_PLACES && places.insert(corrupt.place());
        if is_new {
            tracing::warn!(damage = %corrupt, "the volume is damaged");
        }
        is_new
    }

    /// Damaged places found since the volume was opened, at most 4096.
    pub fn damaged_places(&self) -> usize {
        self.damage.places.lock().len()
    }

    fn record_damage(&self, corrupt: &Corrupt, at: &Location<'_>) {
        let record = ErrorRecord {
            seconds: self.seconds(),
            ino: corrupt.inode.map_or(0, |ino| ino.0),
            block: corrupt.block.map_or(0, |block| block.0),
            func: at.file(),
            line: at.line(),
            code: ErrorCode::Corrupted,
        };
        if self.record_error(&record) != OnError::Continue {
            // The damage is the reason for the stop, and is already recorded.
            self.damage.stop_noted.store(true, Ordering::Release);
            self.journal.refuse_changes(corrupt.to_string());
        }
    }

    /// Records once that all changes stopped, and writes that to disk: into the superblock, and into the
    /// journal, so that it survives a replay that restores an older superblock.
    pub(crate) fn note_stop(&self) {
        let Some(why) = self
            .journal
            .aborted()
            .filter(|_| !self.is_read_only() && !self.is_down())
        else {
            return;
        };
        if !self.damage.stop_noted.swap(true, Ordering::AcqRel) {
            let record = ErrorRecord {
                seconds: self.seconds(),
                ino: 0,
                block: 0,
                func: "throughline-journal",
                line: line!(),
                code: match *why {
                    Abort::Refused(_) => ErrorCode::Corrupted,
                    _ => ErrorCode::Io,
                },
            };
            self.record_error(&record);
        }
        if self.take_pending_errors() {
            let noted = base::edit_primary(self, |home, known| home.copy_errors(known));
            let in_journal = self.journal.record_error(EIO).map_err(Error::from);
            if let Err(error) = noted.and(in_journal) {
                tracing::warn!(%error, "recording that the volume refuses further changes");
            }
        }
    }

    /// Records an error in the superblock in memory. Returns the action to take.
    fn record_error(&self, record: &ErrorRecord<'_>) -> OnError {
        self.superblock.lock().record_error(record);
        self.damage.pending.store(true, Ordering::Release);
        self.changed.store(true, Ordering::Relaxed);
        self.on_error()
    }

    /// The action taken when damage is found while the volume is open for writing.
    pub fn on_error(&self) -> OnError {
        self.settings
            .on_error
            .unwrap_or_else(|| self.superblock.lock().on_error())
    }

    /// Whether errors wait for the superblock to be written. Clears the flag: the caller must write it.
    pub(crate) fn take_pending_errors(&self) -> bool {
        self.damage.pending.swap(false, Ordering::AcqRel)
    }

    /// Sets the flag again after a failed write.
    pub(crate) fn set_pending_errors(&self) {
        self.damage.pending.store(true, Ordering::Release);
    }

    fn seconds(&self) -> u64 {
        self.now().seconds.max(0).cast_unsigned()
    }
}

#[cfg(test)]
mod evicted;
#[cfg(test)]
mod tests;
