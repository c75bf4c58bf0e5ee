//! Detects sequential writing and filling of a file: to choose folio sizes, to write behind the writer, and
//! to recognize runs too long to keep.
//!
//! A file has several runs of writes, so that threads that write parts of one file do not disturb each
//! other's detection. A call owns its run while it writes. All results are hints.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Maximum number of runs of writes that are detected in one file.
const RUNS: usize = 16;

/// In place of the end of a run: a call owns it.
const OWNED: u64 = u64::MAX;

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

/// A run of writes, without its end.
#[derive(Default)]
struct WriteRun {
    start: AtomicU64,
    /// The folio last written to, if not to its end; an empty range if none.
    tail_start: AtomicU64,
    tail_end: AtomicU64,
    /// End of the run when the flusher was last notified.
    notified_until: AtomicU64,
    /// The run was continued since it was last considered for replacement.
    continued: AtomicBool,
}

impl WriteRun {
    fn tail(&self) -> Option<Range<u64>> {
        let tail = self.tail_start.load(Ordering::Relaxed)..self.tail_end.load(Ordering::Relaxed);
        (tail.start < tail.end).then_some(tail)
    }
}

/// Several runs. Their ends, which every write looks at, share a few cache lines.
struct WriteRuns<const N: usize> {
    ends: [AtomicU64; N],
    runs: [WriteRun; N],
}

impl<const N: usize> Default for WriteRuns<N> {
    fn default() -> Self {
        Self {
            ends: std::array::from_fn(|_| AtomicU64::default()),
            runs: std::array::from_fn(|_| WriteRun::default()),
        }
    }
}

impl<const N: usize> WriteRuns<N> {
    fn all(&self) -> impl Iterator<Item = Slot<'_>> {
        let all = self.ends.iter().zip(&self.runs);
        all.map(|(end, run)| Slot { end, run })
    }

    fn slot(&self, number: usize) -> Slot<'_> {
        Slot {
            end: &self.ends[number],
            run: &self.runs[number],
        }
    }
}

/// A run and its end: where its next write begins, or [`OWNED`].
#[derive(Clone, Copy)]
struct Slot<'a> {
    end: &'a AtomicU64,
    run: &'a WriteRun,
}

impl Slot<'_> {
    /// Takes the run if it ends at `offset`.
    fn take(self, offset: u64) -> bool {
        let (own, fail) = (Ordering::Acquire, Ordering::Relaxed);
        self.end.load(fail) == offset && self.end.compare_exchange(offset, OWNED, own, fail).is_ok()
    }

    /// Takes the run, whatever it was, for a new one at `offset`. False if a call owns it.
    fn replace(self, offset: u64) -> bool {
        if self.end.swap(OWNED, Ordering::Acquire) == OWNED {
            return false;
        }
        self.run.start.store(offset, Ordering::Relaxed);
        self.run.notified_until.store(offset, Ordering::Relaxed);
        self.run.tail_end.store(0, Ordering::Relaxed);
        self.run.tail_start.store(0, Ordering::Relaxed);
        true
    }
}

/// The runs of writes of a file.
#[derive(Default)]
pub(crate) struct WriteStreams {
    first: WriteRuns<1>,
    /// Allocated for a file that is written in more than one place: many files are not.
    more: OnceLock<Box<WriteRuns<{ RUNS - 1 }>>>,
    /// The first write has begun.
    begun: AtomicBool,
    /// The next run to consider for replacement.
    hand: AtomicUsize,
}

impl WriteStreams {
    /// Begins a write at `offset`.
    pub(crate) fn begin(&self, offset: u64) -> Writing<'_> {
        let writing = |slot| Writing {
            slot,
            at: offset,
            offset,
        };
        if let Some(slot) = self.all().find(|slot| slot.take(offset)) {
            slot.run.continued.store(true, Ordering::Relaxed);
            self.begun.store(true, Ordering::Relaxed);
            return writing(Some(slot));
        }
        let is_first = !self.begun.swap(true, Ordering::Relaxed);
        let first = self.first.slot(0);
        if is_first && first.replace(offset) {
            return writing(Some(first));
        }
        writing(self.replaced(offset))
    }

    /// A run that was not continued lately, for a new one at `offset`. `None` if calls own all others.
    fn replaced(&self, offset: u64) -> Option<Slot<'_>> {
        let more = self.more.get_or_init(Box::default);
        for _ in 0..2 * RUNS {
            let slot = match self.hand.fetch_add(1, Ordering::Relaxed) % RUNS {
                0 => self.first.slot(0),
                number => more.slot(number - 1),
            };
            if !slot.run.continued.swap(false, Ordering::Relaxed) && slot.replace(offset) {
                return Some(slot);
            }
        }
        None
    }

    fn all(&self) -> impl Iterator<Item = Slot<'_>> {
        let more = self.more.get().map(|more| more.all());
        self.first.all().chain(more.into_iter().flatten())
    }

    /// The folios that sequential writers are still filling, ascending.
    pub(crate) fn tails(&self) -> Vec<Range<u64>> {
        let mut tails: Vec<_> = self.all().filter_map(|slot| slot.run.tail()).collect();
        tails.sort_unstable_by_key(|tail| tail.start);
        tails
    }
}

/// A write call and its run, until it is dropped.
pub(crate) struct Writing<'a> {
    /// `None`: other calls own all runs. The call is treated as a run of its own.
    slot: Option<Slot<'a>>,
    /// End of what has been written.
    at: u64,
    offset: u64,
}

impl Writing<'_> {
    /// Start of the run.
    pub(crate) fn start(&self) -> u64 {
        self.slot
            .map_or(self.offset, |slot| slot.run.start.load(Ordering::Relaxed))
    }

    /// Length of the run before this call, in bytes.
    pub(crate) fn run_bytes(&self) -> u64 {
        self.offset.saturating_sub(self.start())
    }

    /// The write has reached `at` in `folio`, a range of the file. Returns the run so far if the writer has
    /// just left a folio.
    pub(crate) fn wrote(&mut self, at: u64, folio: &Range<u64>) -> Option<Range<u64>> {
        self.at = at;
        let run = self.slot?.run;
        let full = at >= folio.end;
        let tail = if full { 0..0 } else { folio.clone() };
        let before = run.tail();
        let is_other = full || before.as_ref().is_none_or(|one| one.start != tail.start);
        if is_other {
            run.tail_end.store(tail.end, Ordering::Relaxed);
            run.tail_start.store(tail.start, Ordering::Relaxed);
        }
        let left = if full { folio.end } else { folio.start };
        let start = self.start();
        (is_other && left > start).then_some(start..left)
    }

    /// Whether the flusher is to be notified that the run has reached `end`: it is `behind_bytes` past the
    /// last notification, which this call becomes then.
    pub(crate) fn is_due(&self, end: u64, behind_bytes: u64) -> bool {
        let Some(slot) = self.slot else { return false };
        let last = &slot.run.notified_until;
        let is_due = end >= last.load(Ordering::Relaxed).saturating_add(behind_bytes);
        if is_due {
            last.store(end, Ordering::Relaxed);
        }
        is_due
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            slot.end.store(self.at, Ordering::Release);
        }
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
        let streams = WriteStreams::default();
        let write = |from: u64, to: u64, folio: Range<u64>| {
            let mut writing = streams.begin(from);
            let before = writing.run_bytes();
            (before, writing.wrote(to, &folio))
        };
        assert_eq!(write(4096, 5000, 4096..8192), (0, None));
        assert_eq!(streams.tails().pop(), Some(4096..8192));
        assert_eq!(write(5000, 8192, 4096..8192), (904, Some(4096..8192)));
        assert_eq!(streams.tails(), []);
        assert_eq!(write(8192, 9000, 8192..16384), (4096, Some(4096..8192)));
        assert_eq!(streams.tails().pop(), Some(8192..16384));
        assert_eq!(write(0, 100, 0..4096), (0, None));
        assert_eq!(streams.tails(), [0..4096, 8192..16384]);
        assert_eq!(write(9000, 16384, 8192..16384), (4904, Some(4096..16384)));
    }

    #[test]
    fn writers_of_one_file_keep_their_runs_apart() {
        let streams = WriteStreams::default();
        for call in 0..100_u64 {
            for writer in 0..8_u64 {
                let at = (writer << 30) + (call << 20);
                let mut writing = streams.begin(at);
                assert_eq!(writing.run_bytes(), call << 20);
                writing.wrote(at + (1 << 20), &(at..at + (1 << 20)));
                // A write elsewhere, now and then.
                if writer == 0 {
                    let elsewhere = streams.begin((100 << 30) + (call * 7) * 4096);
                    assert_eq!(elsewhere.run_bytes(), 0);
                }
            }
        }
    }

    #[test]
    fn a_call_owns_its_run() {
        let streams = WriteStreams::default();
        let mut all: Vec<Writing<'_>> = (0..40).map(|_| streams.begin(0)).collect();
        assert_eq!(all.iter().filter(|one| one.slot.is_some()).count(), RUNS);
        for one in &mut all {
            one.wrote(4096, &(0..4096));
        }
        drop(all);
        assert_eq!(streams.begin(4096).run_bytes(), 4096);
    }

    #[test]
    fn the_flusher_is_notified_at_intervals() {
        let streams = WriteStreams::default();
        let mut due = 0;
        for call in 0..64_u64 {
            let mut writing = streams.begin(call << 20);
            let end = (call + 1) << 20;
            writing.wrote(end, &((call << 20)..end));
            due += u32::from(writing.is_due(end, 4 << 20));
        }
        assert_eq!(due, 16);
    }
}
