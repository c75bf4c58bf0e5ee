//! What is noticed of sequential writing to a file: for the size of folios, and to write behind the writer.
//!
//! All of it is advice. Several writers of one file may spoil it for each other, and nothing is wrong then but the advice.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
#[derive(Default)]
pub(crate) struct WriteStream {
    /// Where the run of writes, each where the one before ended, began.
    start: AtomicU64,
    /// Where the last write ended.
    next: AtomicU64,
    /// The folio that was written last and not to its end; an empty range is none.
    tail_start: AtomicU64,
    tail_end: AtomicU64,
}

impl WriteStream {
    /// A write begins at `offset`: how long the run in front of it is, in bytes.
    pub(crate) fn begin(&self, offset: u64) -> u64 {
        if self.next.load(Ordering::Relaxed) != offset {
            self.start.store(offset, Ordering::Relaxed);
            return 0;
        }
        offset.saturating_sub(self.start.load(Ordering::Relaxed))
    }

    /// A write has come to `at` in `folio`, a range of the file. The run up to there, if it has left a folio now.
    pub(crate) fn wrote(&self, at: u64, folio: &Range<u64>) -> Option<Range<u64>> {
        self.next.store(at, Ordering::Relaxed);
        let full = at >= folio.end;
        let tail = if full { 0..0 } else { folio.clone() };
        let before = self.tail_start.load(Ordering::Relaxed);
        let was_none = self.tail_end.load(Ordering::Relaxed) == before;
        if full || was_none || before != tail.start {
            self.tail_end.store(tail.end, Ordering::Relaxed);
            self.tail_start.store(tail.start, Ordering::Relaxed);
        }
        let start = self.start.load(Ordering::Relaxed);
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
    fn a_run_is_told_of_when_it_leaves_a_folio() {
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
