//! What the flusher did, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// A moment's figures of a flusher, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WritebackCounts {
    /// Runs of adjacent blocks that were taken for writing.
    pub runs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Runs that began before the end of the run of the same file that was taken before.
    pub descents: u64,
    /// Times that a file had its turn in background work.
    pub turns: u64,
    /// Runs that went into a file's mapping or lengthened it.
    pub commits: u64,
    /// Runs that failed: their blocks are dirty again.
    pub errors: u64,
    /// Times that a file was tried again, by the timer, after a run that failed.
    pub retries: u64,
    /// Calls that waited for the flusher to flush.
    pub flushes: u64,
    /// Flushes that those who waited did themselves, whole.
    pub own_flushes: u64,
    /// Times that a file was written because a sequential writer had left bytes behind.
    pub stream_passes: u64,
    /// Times that a file was written because of its age.
    pub aged: u64,
    /// Times that memory was short.
    pub pressures: u64,
    /// Times that the flusher was woken because much is dirty or somebody waits for room.
    pub wakes: u64,
}

/// One figure of [`WritebackCounts`].
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// As [`WritebackCounts`], being counted.
#[derive(Default)]
pub(super) struct Counting {
    pub(super) runs: Count,
    pub(super) bytes: Count,
    pub(super) descents: Count,
    pub(super) turns: Count,
    pub(super) commits: Count,
    pub(super) errors: Count,
    pub(super) retries: Count,
    pub(super) flushes: Count,
    pub(super) own_flushes: Count,
    pub(super) stream_passes: Count,
    pub(super) aged: Count,
    pub(super) pressures: Count,
    pub(super) wakes: Count,
}

impl Counting {
    pub(super) fn snapshot(&self) -> WritebackCounts {
        WritebackCounts {
            runs: self.runs.get(),
            bytes: self.bytes.get(),
            descents: self.descents.get(),
            turns: self.turns.get(),
            commits: self.commits.get(),
            errors: self.errors.get(),
            retries: self.retries.get(),
            flushes: self.flushes.get(),
            own_flushes: self.own_flushes.get(),
            stream_passes: self.stream_passes.get(),
            aged: self.aged.get(),
            pressures: self.pressures.get(),
            wakes: self.wakes.get(),
        }
    }
}
