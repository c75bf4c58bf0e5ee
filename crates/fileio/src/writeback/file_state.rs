//! The flusher's state in a file: [`FileState`], part of each [`AddressSpace`](crate::AddressSpace).
//!
//! Invariant: a file with dirty bytes is listed, or the thread that dirtied them is about to list it. A
//! writer first dirties bytes and then checks the flag; the flusher first clears the flag and then checks for
//! dirty bytes. With a full fence between the two steps on both sides, at least one of them sees the other.

use std::ops::Range;

use super::ranges::Ranges;
use crate::sync::{AtomicBool, Mutex, Ordering, fence};

/// See the module documentation.
#[derive(Default)]
pub(crate) struct FileState {
    /// The flusher holds the file, or a message about it is queued.
    listed: AtomicBool,
    passed: Asked,
    started: Asked,
}

impl FileState {
    /// Called after bytes became dirty. Returns whether the caller must notify the flusher of the file.
    pub(super) fn enlist(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.listed.load(Ordering::Relaxed) && !self.listed.swap(true, Ordering::AcqRel)
    }

    /// Called by the flusher to forget the file. True: it may. False: bytes became dirty meanwhile
    /// (`is_dirty`), and the file is listed again.
    pub(super) fn delist(&self, is_dirty: impl Fn() -> bool) -> bool {
        self.listed.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        !is_dirty() || self.listed.swap(true, Ordering::AcqRel)
    }

    /// A sequential writer has passed `range`. Returns whether the flusher must be notified: if it has read
    /// the last notification.
    pub(super) fn stream_passed(&self, range: Range<u64>) -> bool {
        self.passed.add(range)
    }

    /// The ranges that streams have passed since the last call.
    pub(super) fn take_passed(&self) -> Ranges {
        self.passed.take()
    }

    /// Requests write-back of `range` without waiting. Returns whether the flusher must be notified.
    pub(super) fn start(&self, range: Range<u64>) -> bool {
        self.started.add(range)
    }

    /// The ranges requested by [`FileState::start`] since the last call.
    pub(super) fn take_started(&self) -> Ranges {
        self.started.take()
    }
}

/// The pending ranges.
#[derive(Default)]
struct Asked(Mutex<Ranges>);

impl Asked {
    /// Adds a range. Returns whether it is the first.
    fn add(&self, range: Range<u64>) -> bool {
        let mut asked = self.0.lock();
        let is_first = asked.is_empty();
        asked.add(range);
        is_first
    }

    fn take(&self) -> Ranges {
        std::mem::take(&mut *self.0.lock())
    }
}
