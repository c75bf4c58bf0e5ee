//! Detects sequential writing and filling of a file: to choose folio sizes, to write behind the writer, and
//! to recognize runs too long to keep.
//!
//! All results are hints. Concurrent writers of one file may disturb each other's detection; correctness is
//! unaffected.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum distance between the readers of one stream, in bytes.
const NEAR_BYTES: u64 = 16 << 20;

/// A run of accesses, each starting where the previous one ended.
#[derive(Default)]
pub(crate) struct Run {
    /// Start of the run.
    start: AtomicU64,
    /// End of the last access.
    next: AtomicU64,
}

impl Run {
    /// Begins an access at `offset`. Returns the length of the run before it, in bytes.
    pub(crate) fn begin(&self, offset: u64) -> u64 {
        if self.next.load(Ordering::Relaxed) != offset {
            self.start.store(offset, Ordering::Relaxed);
            return 0;
        }
        offset.saturating_sub(self.start.load(Ordering::Relaxed))
    }

    /// As [`Run::begin`], for several threads that continue one run and may access parts of it twice: a short
    /// step back does not start a new run.
    pub(crate) fn begin_near(&self, offset: u64) -> u64 {
        let next = self.next.load(Ordering::Relaxed);
        match next.checked_sub(offset) {
            Some(back) if back <= NEAR_BYTES => self.begin(next),
            _ => self.begin(offset),
        }
    }

    /// As [`Run::came_to`], for an access begun with [`Run::begin_near`].
    pub(crate) fn came_near(&self, at: u64) {
        let next = self.next.load(Ordering::Relaxed);
        if next < at || next - at > NEAR_BYTES {
            self.came_to(at);
        }
    }

    /// The access has reached `at`.
    pub(crate) fn came_to(&self, at: u64) {
        self.next.store(at, Ordering::Relaxed);
    }
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct WriteStream {
    run: Run,
    /// The folio last written to, if not to its end; an empty range if none.
    tail_start: AtomicU64,
    tail_end: AtomicU64,
}

impl WriteStream {
    /// Begins a write at `offset`. Returns the length of the run before it, in bytes.
    pub(crate) fn begin(&self, offset: u64) -> u64 {
        self.run.begin(offset)
    }

    /// A write has reached `at` in `folio`, a range of the file. Returns the run so far if the writer has
    /// just left a folio.
    pub(crate) fn wrote(&self, at: u64, folio: &Range<u64>) -> Option<Range<u64>> {
        self.run.came_to(at);
        let full = at >= folio.end;
        let tail = if full { 0..0 } else { folio.clone() };
        let before = self.tail_start.load(Ordering::Relaxed);
        let was_none = self.tail_end.load(Ordering::Relaxed) == before;
        if full || was_none || before != tail.start {
            self.tail_end.store(tail.end, Ordering::Relaxed);
            self.tail_start.store(tail.start, Ordering::Relaxed);
        }
        let start = self.run.start.load(Ordering::Relaxed);
        let left = if full { folio.end } else { folio.start };
        ((full || was_none || before != tail.start) && left > start).then_some(start..left)
    }

    /// The folio that the last sequential writer is still filling.
    pub(crate) fn tail(&self) -> Option<Range<u64>> {
        let tail = self.tail_start.load(Ordering::Relaxed)..self.tail_end.load(Ordering::Relaxed);
        (tail.start < tail.end).then_some(tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_step_back_continues_the_run() {
        let run = Run::default();
        let go = |from: u64, to: u64| {
            let before = run.begin_near(from);
            run.came_near(to);
            before
        };
        assert_eq!(go(0, 100), 0);
        assert_eq!(go(100, 300), 100);
        assert_eq!(go(200, 250), 300);
        assert_eq!(go(300, 400), 300);
        assert_eq!(go(1 << 40, 2 << 40), 0);
        assert_eq!(go(0, 100), 0);
        assert_eq!(go(100, 200), 100);
    }

    #[test]
    fn a_run_is_reported_when_it_leaves_a_folio() {
        let stream = WriteStream::default();
        assert_eq!(stream.begin(4096), 0);
        assert_eq!(stream.wrote(5000, &(4096..8192)), None);
        assert_eq!(stream.tail(), Some(4096..8192));
        assert_eq!(stream.begin(5000), 904);
        assert_eq!(stream.wrote(8192, &(4096..8192)), Some(4096..8192));
        assert_eq!(stream.tail(), None);
        assert_eq!(stream.begin(8192), 4096);
        assert_eq!(stream.wrote(9000, &(8192..16384)), Some(4096..8192));
        assert_eq!(stream.tail(), Some(8192..16384));
        assert_eq!(stream.begin(0), 0);
    }
}
