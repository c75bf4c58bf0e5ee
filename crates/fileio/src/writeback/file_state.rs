//! What a file carries for the flusher: [`FileState`], part of each [`AddressSpace`](crate::AddressSpace).
//!
//! Invariant: a file with dirty bytes is listed, or the thread that made them dirty is about to list it. Whoever makes
//! bytes dirty does so first and looks at the flag then; the flusher takes the flag away first and looks for dirty bytes
//! then. With a full fence between the two steps on both sides, one of them sees the other.

use std::ops::Range;

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, fence};

/// See the module.
#[derive(Default)]
pub(crate) struct FileState {
    /// The flusher knows of the file, or a message says so that it has not read yet.
    listed: AtomicBool,
    /// Up to where the flusher was last told that a stream has passed.
    passed_until: AtomicU64,
    passed: Asked,
    started: Asked,
}

impl FileState {
    /// After bytes became dirty: whether the flusher must be told of the file.
    pub(super) fn enlist(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.listed.load(Ordering::Relaxed) && !self.listed.swap(true, Ordering::AcqRel)
    }

    /// The flusher wants to forget the file. True: it may. False: bytes became dirty meanwhile (`is_dirty` says so), and it
    /// is listed again.
    pub(super) fn delist(&self, is_dirty: impl Fn() -> bool) -> bool {
        self.listed.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        !is_dirty() || self.listed.swap(true, Ordering::AcqRel)
    }

    /// A sequential writer is through with `range`. Whether the flusher must be told: when a file has got `behind_bytes`
    /// further than it was last told, and the last word is read.
    pub(super) fn stream_passed(&self, range: Range<u64>, behind_bytes: u64) -> bool {
        let last = self.passed_until.load(Ordering::Relaxed);
        if last < range.end && range.end < last.saturating_add(behind_bytes) {
            return false;
        }
        self.passed_until.store(range.end, Ordering::Relaxed);
        self.passed.add(range)
    }

    /// What streams have passed since the last call.
    pub(super) fn take_passed(&self) -> Option<Range<u64>> {
        self.passed.take()
    }

    /// Somebody wants `range` written and does not wait. Whether the flusher must be told.
    pub(super) fn start(&self, range: Range<u64>) -> bool {
        self.started.add(range)
    }

    /// What [`FileState::start`] asked for since the last call.
    pub(super) fn take_started(&self) -> Option<Range<u64>> {
        self.started.take()
    }
}

/// Ranges asked for and not looked at yet, as one: so that many of them take no more memory than one.
#[derive(Default)]
struct Asked(Mutex<Option<Range<u64>>>);

impl Asked {
    /// Whether it is the first.
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
