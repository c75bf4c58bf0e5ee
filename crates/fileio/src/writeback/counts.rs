//! Counters of the flusher.

use std::sync::atomic::{AtomicU64, Ordering};

/// A snapshot of the flusher's counters since the cache was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WritebackCounts {
    /// Runs of adjacent blocks taken for write-back.
    pub runs: u64,
    /// Bytes in these runs.
    pub bytes: u64,
    /// Runs that began before the end of the previous run of the same file.
    pub descents: u64,
    /// Turns of files in background write-back.
    pub turns: u64,
    /// Runs that changed a file's mapping or size.
    pub commits: u64,
    /// Failed runs; their blocks became dirty again.
    pub errors: u64,
    /// Timed retries of files after a failed run.
    pub retries: u64,
    /// Flushes that waited for the flusher.
    pub flushes: u64,
    /// Flushes that the waiting thread completed itself.
    pub own_flushes: u64,
    /// Writes of a file because a sequential writer had passed part of it.
    pub stream_passes: u64,
    /// Waits of writers of one of several streams for their backlog.
    pub holds: u64,
    /// Writes of a file because of its age.
    pub aged: u64,
    /// Requests because memory was short.
    pub pressures: u64,
    /// Wake-ups because dirty memory passed a threshold or a thread waited for room.
    pub wakes: u64,
}

/// One counter of [`WritebackCounts`].
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

/// The counters behind [`WritebackCounts`].
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
    pub(super) holds: Count,
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
            holds: self.holds.get(),
            aged: self.aged.get(),
            pressures: self.pressures.get(),
            wakes: self.wakes.get(),
        }
    }
}
