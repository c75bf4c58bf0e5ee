//! Space on the host's file system for writes to a plain file: reserved before the data is accepted.
//!
//! Space is reserved ahead of a growing file without changing its length, in steps that grow with the file,
//! because each reservation is a system call that waits for the I/O in flight. In holes of a sparse file,
//! exactly the requested range is reserved.
//!
//! Invariants:
//! - A recorded range is allocated: writing it needs no new space. Unrecorded ranges may be allocated as
//!   well.
//! - If the file system does not support reservation, nothing is guaranteed: a full disk then appears at
//!   write-back and sync. A reservation is as good as the host's file system makes it: one that never
//!   overwrites in place may need space again.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use throughline_block::{Disk, Error as DiskError};
use throughline_locks::{Mutex, Rank};

use crate::error::{Error, Reason, Result};

/// Minimum and maximum reserved ahead of a growing file, in bytes.
const MIN_AHEAD_BYTES: u64 = 256 << 10;
const MAX_AHEAD_BYTES: u64 = 64 << 20;
/// Maximum number of recorded pieces of a sparse file. When exceeded, all are forgotten and reserved again as
/// needed.
const MAX_PIECES: usize = 1024;
/// Reserved ranges are aligned to this, in bytes.
const UNIT_BYTES: u64 = 4096;

/// See the module documentation.
pub(super) struct Room {
    /// Every byte before this offset is allocated.
    dense_until: AtomicU64,
    /// The file system does not support reservation.
    unsupported: AtomicBool,
    state: Mutex<State>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            dense_until: AtomicU64::new(0),
            unsupported: AtomicBool::new(false),
            state: Mutex::ranked(Rank::RawRoom, State::default()),
        }
    }
}

#[derive(Default)]
struct State {
    /// Whether the first hole of the file has been looked up.
    looked: bool,
    /// Allocated pieces past `dense_until`: start → end. They do not touch.
    pieces: BTreeMap<u64, u64>,
}

impl Room {
    /// Ensures space for `offset..end` of a file of `size` bytes.
    pub(super) fn take(&self, disk: &Disk, offset: u64, end: u64, size: u64) -> Result<()> {
        if end <= self.dense_until.load(Ordering::Acquire)
            || self.unsupported.load(Ordering::Relaxed)
        {
            return Ok(());
        }
        let mut state = self.state.lock();
        if !state.looked {
            state.looked = true;
            // If this is unknown, ranges are reserved again, which does no harm.
            let hole = disk.seek_hole(0).ok().flatten().unwrap_or(0);
            self.dense_until
                .store(hole - hole % UNIT_BYTES, Ordering::Release);
        }
        let dense = self.dense_until.load(Ordering::Acquire);
        let begin = offset.max(dense) / UNIT_BYTES * UNIT_BYTES;
        let end = end.checked_next_multiple_of(UNIT_BYTES).unwrap_or(end);
        if end <= dense || state.knows(begin, end) {
            return Ok(());
        }
        let ahead = state.ahead(begin, end, dense, size);
        let done = match reserve(disk, begin, end.saturating_add(ahead)) {
            Err(Error::Caller(_)) if ahead > 0 => reserve(disk, begin, end).map(|()| end),
            other => other.map(|()| end.saturating_add(ahead)),
        };
        match done {
            Ok(until) => {
                self.note(&mut state, begin, until);
                Ok(())
            }
            Err(Error::Unsupported(_)) => {
                self.unsupported.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether space may be reserved past byte `size`.
    pub(super) fn reaches_past(&self, size: u64) -> bool {
        let state = self.state.lock();
        let last = state.pieces.last_key_value().map_or(0, |(_, end)| *end);
        let end = self.dense_until.load(Ordering::Acquire).max(last);
        // Until the first lookup nothing was reserved.
        state.looked && end > size.saturating_add(UNIT_BYTES)
    }

    /// Forgets what is recorded from `offset` on, because it may no longer be allocated.
    pub(super) fn forget_from(&self, offset: u64) {
        let mut state = self.state.lock();
        let offset = offset - offset % UNIT_BYTES;
        self.dense_until.fetch_min(offset, Ordering::AcqRel);
        drop(state.pieces.split_off(&offset));
        if let Some((_, end)) = state.pieces.iter_mut().next_back() {
            *end = (*end).min(offset);
        }
    }

    fn note(&self, state: &mut State, begin: u64, end: u64) {
        let (mut begin, mut end) = (begin, end);
        // Pieces do not touch, so at most one piece before the range can reach it, besides those that begin
        // in it.
        let before = state.pieces.range(..begin).next_back();
        if let Some((from, until)) = before.map(|(f, u)| (*f, *u)).filter(|(_, u)| *u >= begin) {
            begin = from;
            end = end.max(until);
        }
        let inside: Vec<u64> = state.pieces.range(begin..=end).map(|(f, _)| *f).collect();
        for from in inside {
            end = end.max(state.pieces.remove(&from).unwrap_or(0));
        }
        if begin <= self.dense_until.load(Ordering::Acquire) {
            self.dense_until.fetch_max(end, Ordering::AcqRel);
            return;
        }
        if state.pieces.len() >= MAX_PIECES {
            state.pieces.clear();
        }
        state.pieces.insert(begin, end);
    }
}

impl State {
    fn knows(&self, begin: u64, end: u64) -> bool {
        let before = self.pieces.range(..=begin).next_back();
        before.is_some_and(|(_, until)| *until >= end)
    }

    /// How much to reserve past `end`: nothing inside the file, where it would fill holes permanently.
    fn ahead(&self, begin: u64, end: u64, dense: u64, size: u64) -> u64 {
        if end < size {
            return 0;
        }
        let run_begin = self
            .pieces
            .range(..begin)
            .next_back()
            .filter(|(_, until)| **until == begin)
            .map(|(from, _)| *from);
        let run = match run_begin {
            _ if begin == dense => end,
            Some(from) => end - from,
            None => end - begin,
        };
        run.clamp(MIN_AHEAD_BYTES, MAX_AHEAD_BYTES) / UNIT_BYTES * UNIT_BYTES
    }
}

fn reserve(disk: &Disk, begin: u64, end: u64) -> Result<()> {
    disk.reserve(begin, end - begin).map_err(host_error)
}

/// Maps an error of the host's file to a [`Reason`] where the device is not at fault.
pub(super) fn host_error(error: DiskError) -> Error {
    let DiskError::Device { source, .. } = &error else {
        return error.into();
    };
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Reason::NoSpace.into(),
        io::ErrorKind::FileTooLarge => Reason::TooLarge.into(),
        io::ErrorKind::Unsupported => Error::Unsupported(error.to_string()),
        _ => error.into(),
    }
}
