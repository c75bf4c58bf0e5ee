//! [`Ahead`]: what to fetch ahead of readers that go through an object from front to back.
//!
//! Windows of files are read ahead above, by who knows the files. That is a call or a window at a time, with
//! a pause at the end of each in which nothing is in flight; for a store that answers after 30 ms, the pause
//! is most of the time. So what follows a long run is fetched too: never more than a quarter of what was read
//! of the run, so that at most a quarter of all bytes is fetched in vain.

use std::ops::Range;

use throughline_locks::Mutex;

/// The runs that are remembered.
const RUNS: usize = 16;
/// How far before the end of a run a read may begin, and how far behind: threads read parts of one file.
const BEFORE_BYTES: u64 = 32 << 20;
const BEHIND_BYTES: u64 = 8 << 20;
/// The part of a run that is fetched ahead.
const PART: u64 = 4;

#[derive(Clone, Copy, Default)]
struct Run {
    /// Behind the last byte that was read.
    end: u64,
    /// How much was read, without gaps.
    read_bytes: u64,
    /// Behind what was fetched ahead.
    fetched: u64,
    /// How much was fetched ahead and not read since: it is still to be read, or was skipped.
    unread_bytes: u64,
}

/// The runs of an object.
#[derive(Default)]
pub(crate) struct Ahead {
    /// The last one that was read is the last.
    runs: Mutex<Vec<Run>>,
}

impl Ahead {
    /// A read of these bytes begins. Returns what to fetch behind it: nothing, or at least `step_bytes`, and
    /// up to `max_bytes` ahead of the reader.
    pub(crate) fn read(
        &self,
        bytes: &Range<u64>,
        step_bytes: u64,
        max_bytes: u64,
    ) -> Option<Range<u64>> {
        let mut runs = self.runs.lock();
        let is_of = |run: &Run| {
            let from = run.end.saturating_sub(BEFORE_BYTES);
            (from..=run.end.saturating_add(BEHIND_BYTES)).contains(&bytes.start)
        };
        let mut run = match runs.iter().rposition(is_of) {
            Some(at) => runs.remove(at),
            None => Run {
                end: bytes.start,
                ..Run::default()
            },
        };
        let ahead = run.read(bytes, step_bytes, max_bytes);
        if runs.len() >= RUNS {
            runs.remove(0);
        }
        runs.push(run);
        ahead
    }
}

impl Run {
    fn read(&mut self, bytes: &Range<u64>, step_bytes: u64, max_bytes: u64) -> Option<Range<u64>> {
        let new = bytes.end.saturating_sub(self.end.max(bytes.start));
        let found = bytes.end.min(self.fetched).saturating_sub(bytes.start);
        self.read_bytes = self.read_bytes.saturating_add(new);
        self.unread_bytes = self.unread_bytes.saturating_sub(found);
        self.end = self.end.max(bytes.end);
        let from = self.fetched.max(self.end);
        let due = (self.read_bytes / PART).saturating_sub(self.unread_bytes);
        let room = due.min(max_bytes.saturating_sub(from.saturating_sub(self.end)));
        if new == 0 || room < step_bytes {
            return None;
        }
        self.fetched = from.saturating_add(room);
        self.unread_bytes = self.unread_bytes.saturating_add(room);
        Some(from..self.fetched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn at_most_a_quarter_is_fetched_in_vain() {
        let ahead = Ahead::default();
        let (mut fetched, mut at, step) = (0, 0, 4 * MIB);
        while at < 400 * MIB {
            if let Some(range) = ahead.read(&(at..at + MIB), step, 32 * MIB) {
                assert!(range.start >= fetched && range.end - range.start >= step);
                fetched = range.end;
            }
            at += MIB;
            assert!(fetched <= at + (at / 4).min(32 * MIB), "at {at}: {fetched}");
        }
        assert!(fetched >= at + 24 * MIB, "{fetched}");
    }

    #[test]
    fn a_reader_that_skips_parts_fetches_little_of_them() {
        let ahead = Ahead::default();
        let (mut fetched, mut read) = (0, 0);
        for at in (0..2000 * MIB).step_by(4 << 20) {
            read += 2 * MIB;
            let range = ahead.read(&(at..at + 2 * MIB), 4 * MIB, 32 * MIB);
            fetched += range.map_or(0, |range| range.end - range.start);
        }
        // Half of what is fetched ahead is read.
        assert!(fetched > 0 && fetched / 2 <= read / 4, "{fetched} {read}");
    }

    #[test]
    fn scattered_reads_and_reads_of_the_same_fetch_nothing() {
        let ahead = Ahead::default();
        for at in 0..500 {
            let begin = at * 5 * MIB;
            assert_eq!(ahead.read(&(begin..begin + 4096), MIB, 32 * MIB), None);
        }
        let ahead = Ahead::default();
        for _ in 0..100 {
            assert_eq!(ahead.read(&(0..MIB), MIB, 32 * MIB), None);
        }
    }

    #[test]
    fn several_runs_are_told_apart() {
        let ahead = Ahead::default();
        let mut seen = 0;
        for at in 0..64 {
            for run in 0..8 {
                let begin = run * (1 << 40) + at * MIB;
                seen += u64::from(
                    ahead
                        .read(&(begin..begin + MIB), 4 * MIB, 32 * MIB)
                        .is_some(),
                );
            }
        }
        assert!(seen >= 8 * 8, "{seen}");
    }
}
