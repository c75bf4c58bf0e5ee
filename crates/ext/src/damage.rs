//! Damage, and failed writes of a volume that is open for writing: what is recorded of them, and what follows.
//!
//! - Damage is recorded in the superblock (`s_state`, `s_error_count`, the first and the last error), so that the next
//!   `e2fsck` looks at everything. What else follows is for whoever opened the volume to say
//!   ([`crate::OpenOptions::on_error`]), else for the superblock's `s_errors`: `continue` goes on; `remount-ro`, and `panic`,
//!   which is not for a library to do, stop all changes.
//! - Whether it is open for writing or not: each damaged place is said once in the log, with its inode and block, and counted
//!   ([`Base::damaged_places`]). Reading goes on around it.
//! - A failed write of metadata, and an operation that ended half-way, stop all changes whatever `s_errors` says. That is
//!   recorded too.
//! - While changes are taken, the record reaches the disk with the superblock, in a transaction. Once they are stopped it
//!   is put home past the journal, best effort, into the bytes that the disk has: nothing that was not committed gets
//!   there with it.

use std::collections::HashSet;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use throughline_extfmt::superblock::{ErrorCode, ErrorRecord, OnError};
use throughline_extfmt::{FsBlock, InodeNumber};
use throughline_journal::Abort;

use crate::base::Base;
use crate::error::{Corrupt, Error, Result};
use crate::lock_order::{Rank, locked};
use crate::primary;

/// What the kernel leaves in a journal that it stopped, whatever the reason.
const EIO: u32 = 5;
/// Damaged places that are remembered, so that none is counted twice; beyond these they no longer are.
const MOST_PLACES: usize = 4096;

/// What has still to be told to the disk.
#[derive(Default)]
pub(crate) struct Damage {
    /// The superblock in memory knows of errors that the one on the disk does not.
    pending: AtomicBool,
    /// That all changes stopped is in the superblock in memory.
    stop_noted: AtomicBool,
    /// Inodes and blocks that are damaged.
    places: Mutex<HashSet<(Option<InodeNumber>, Option<FsBlock>)>>,
}

impl Base {
    /// Passes a result on; damage in it is recorded, and followed by what the superblock asks for.
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

    /// As [`Base::note_damage`], for what can be done without: `None` where it is damaged.
    #[track_caller]
    pub(crate) fn around_damage<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match self.note_damage(result) {
            Ok(value) => Ok(Some(value)),
            Err(Error::Corrupt(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Fs::around_damage`], in a change: the damage is the answer where it stopped all changes.
    #[track_caller]
    pub(crate) fn change_around_damage<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match self.note_damage(result) {
            Err(Error::Corrupt(_)) if self.stopped().is_none() => Ok(None),
            done => done.map(Some),
        }
    }

    /// Says of a damaged place in the log and counts it, unless it is known; whether it was not.
    pub fn count_damage(&self, corrupt: &Corrupt) -> bool {
        let mut places = self.damage.places.lock();
        let is_new = places.len() < MOST_PLACES && places.insert(corrupt.place());
        if is_new {
            tracing::warn!(damage = %corrupt, "the volume is damaged");
        }
        is_new
    }

    /// How many damaged places were met since the volume was opened, 4096 at the most.
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
            // This is the reason, and it is noted.
            self.damage.stop_noted.store(true, Ordering::Release);
            self.journal.refuse_changes(corrupt.to_string());
        }
    }

    /// Notes that all changes stopped, once, and puts that home: into the superblock, and into the journal, where it stays
    /// known if a replay brings back an older superblock.
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
            let known = **locked(Rank::Super, 0, || self.superblock.lock());
            // A checkpoint may be bringing a newer superblock: what is read must not go over it.
            let noted = self
                .journal
                .while_home_rests(|| primary::edit(&self.disk, |home| home.copy_errors(&known)));
            let in_journal = self.journal.record_error(EIO).map_err(Error::from);
            if let Err(error) = noted.and(in_journal) {
                tracing::warn!(%error, "recording that the volume takes no more changes");
            }
        }
    }

    /// Enters an error into the superblock in memory; what has to follow.
    fn record_error(&self, record: &ErrorRecord<'_>) -> OnError {
        locked(Rank::Super, 0, || self.superblock.lock()).record_error(record);
        self.damage.pending.store(true, Ordering::Release);
        self.changed.store(true, Ordering::Relaxed);
        self.on_error()
    }

    /// What follows when damage is found while the volume is open for writing.
    pub fn on_error(&self) -> OnError {
        self.settings
            .on_error
            .unwrap_or_else(|| locked(Rank::Super, 0, || self.superblock.lock()).on_error())
    }

    /// Whether errors wait for the superblock to be written. Whoever asks writes it.
    pub(crate) fn take_pending_errors(&self) -> bool {
        self.damage.pending.swap(false, Ordering::AcqRel)
    }

    /// They could not be written.
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
