//! The flusher's state in a file: [`FileState`], part of each [`AddressSpace`](crate::AddressSpace).
//!
//! Invariant: a file with dirty bytes is listed, or the thread that dirtied them is about to list it. A
//! writer first dirties bytes and then checks the flag; the flusher first clears the flag and then checks for
//! dirty bytes. With a full fence between the two steps on both sides, at least one of them sees the other.

use std::ops::Range;

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, fence};

/// See the module documentation.
#[derive(Default)]
pub(crate) struct FileState {
    /// The flusher holds the file, or a message about it is queued.
    listed: AtomicBool,
    /// End of the stream at the last notification of the flusher.
    passed_until: AtomicU64,
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

    /// A sequential writer has passed `range`. Returns whether the flusher must be notified: if the stream is
    /// `behind_bytes` past the last notification and that one has been read.
    pub(super) fn stream_passed(&self, range: Range<u64>, behind_bytes: u64) -> bool {
        let last = self.passed_until.load(Ordering::Relaxed);
        if last < range.end && range.end < last.saturating_add(behind_bytes) {
            return false;
        }
        self.passed_until.store(range.end, Ordering::Relaxed);
        self.passed.add(range)
    }

    /// The range that streams have passed since the last call.
    pub(super) fn take_passed(&self) -> Option<Range<u64>> {
        self.passed.take()
    }

    /// Requests write-back of `range` without waiting. Returns whether the flusher must be notified.
    pub(super) fn start(&self, range: Range<u64>) -> bool {
        self.started.add(range)
    }

    /// The range requested by [`FileState::start`] since the last call.
    pub(super) fn take_started(&self) -> Option<Range<u64>> {
        self.started.take()
    }
}

/// The pending ranges, merged into one to bound the memory.
#[derive(Default)]
struct Asked(Mutex<Option<Range<u64>>>);

impl Asked {
    /// Adds a range. Returns whether it is the first.
    fn add(&self, range: Range<u64>) -> bool {
        let mut asked = self.0.lock();
        match &mut *asked {
            Some(all) => {
                *all = all.start.min(range.start)..all.end.max(range.end);
                false
            }
            none => {
                *none = Some(range);
                true
            }
        }
    }

    fn take(&self) -> Option<Range<u64>> {
        self.0.lock().take()
    }
}
