//! Background write-back: files take turns of one chunk each; and the size of runs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::super::BEHIND_BYTES;
use super::super::files::{Key, Place};
use super::super::jobs::Kind;
use super::{Flusher, Issue};
use crate::cache::AddressSpace;

/// Minimum and maximum length of a run, as far as enough is dirty.
const RUN_BYTES: Range<u64> = 4 << 20..32 << 20;

/// Minimum length of a run if the limit of dirty memory is so small that [`RUN_BYTES`] would be much of it.
const MIN_RUN_BYTES: u64 = 64 << 10;

/// Maximum length of a run of a failed file, so that data that cannot be written delays the rest only
/// briefly.
const FAILED_RUN_BYTES: u64 = 256 << 10;

impl Flusher {
    /// Submits one run of the file whose turn it is.
    pub(super) fn background(&mut self) -> bool {
        if self.turns() {
            return true;
        }
        // Rather than leave the device idle, also write the folios being appended to. One pass only: a file
        // may stay queued without anything to take, for example because of a job.
        if self.runs.is_empty() && self.files.all_ready(Place::Tail) {
            self.tails_too = self.files.ready_count();
            if self.turns() {
                return true;
            }
        }
        self.found_nothing |= std::mem::take(&mut self.urge_bytes) > 0;
        false
    }

    /// One pass over the queued files, until one has something to write.
    fn turns(&mut self) -> bool {
        for _ in 0..self.files.ready_count() {
            let Some(key) = self.files.front() else {
                break;
            };
            let left = match self.turn {
                Some((of, left)) if of == key => left,
                _ => self.chunk_bytes(),
            };
            match self.visit(key, left.min(self.run_bytes())) {
                Issue::Issued(bytes, end) => {
                    self.issued_in_turn(key, left, bytes, end);
                    return true;
                }
                Issue::Clean => self.end_turn(key, None),
                Issue::Frozen => self.end_turn(key, Some(Place::Frozen)),
                Issue::Failed(error) => self.files.fail(key, error, Instant::now()),
            }
            self.tails_too = self.tails_too.saturating_sub(1);
        }
        false
    }

    fn issued_in_turn(&mut self, key: Key, left: u64, bytes: u64, end: u64) {
        self.urge_bytes = self.urge_bytes.saturating_sub(bytes);
        if self.turn.is_none_or(|(of, _)| of != key) {
            self.shared.counting.turns.add(1);
        }
        if let Some(file) = self.files.get(key) {
            file.cursor = end;
        }
        self.turn = Some((key, left.saturating_sub(bytes)));
        if bytes >= left {
            self.turn = None;
            self.tails_too = self.tails_too.saturating_sub(1);
            if self.files.front() == Some(key) {
                self.files.next_turn();
            }
            self.files.all_ready(Place::Tail);
        }
    }

    /// Ends the turn of a file that has nothing to write now.
    fn end_turn(&mut self, key: Key, place: Option<Place>) {
        let Some(file) = self.files.get(key) else {
            return;
        };
        let place = place.unwrap_or(match file.runs.is_empty() {
            true => Place::Tail,
            false => Place::InFlight,
        });
        self.files.put(key, place);
        self.forget_clean(key);
    }

    /// Looks for a run of a file in its turn: from the end of the last run, wrapping at the end, and skipping
    /// its tails.
    fn visit(&mut self, key: Key, most_bytes: u64) -> Issue {
        let Some(file) = self.files.get(key) else {
            return Issue::Clean;
        };
        let (from, host) = (file.cursor, Arc::clone(&file.host));
        // A file being replaced is best left until its new contents are complete: while it is open, unless a
        // thread waits.
        let is_unfinished =
            || self.tails_too == 0 || host.is_open() && !self.is_pressed(host.space());
        if host.whole_bytes() > 0 && is_unfinished() {
            return Issue::Clean;
        }
        let tails = match self.tails_too {
            0 => host.space().append_tails(),
            _ => Vec::new(),
        };
        for half in [from..u64::MAX, 0..from] {
            let mut start = half.start;
            let ends = tails
                .iter()
                .cloned()
                .chain(std::iter::once(u64::MAX..u64::MAX));
            for tail in ends {
                let range = start..half.end.min(tail.start);
                start = start.max(tail.end);
                if range.start >= range.end {
                    continue;
                }
                match self.issue(key, range, most_bytes) {
                    Issue::Clean => {}
                    other => return other,
                }
            }
        }
        Issue::Clean
    }

    /// Whether memory is short or a thread waits for room.
    fn is_pressed(&self, space: &AddressSpace) -> bool {
        self.urge_bytes > 0 || space.cache().throttle().is_waited_for()
    }

    pub(super) fn chunk_bytes(&self) -> u64 {
        let file = self.files.any();
        let chunk = file.map(|file| file.host.space().cache().throttle().chunk_bytes());
        chunk.unwrap_or(RUN_BYTES.start).max(1)
    }

    /// Maximum length of a job's run.
    pub(super) fn job_run_bytes(&self, is_failed: bool) -> u64 {
        let most = self.run_bytes();
        if is_failed {
            return most.min(FAILED_RUN_BYTES);
        }
        // If another thread waits, it should get its turn soon.
        match self.jobs.is_any(Kind::Urgent) {
            true => most.min(RUN_BYTES.start),
            false => most,
        }
    }

    /// Maximum length of a run: a fraction of a chunk, so that data on a slow device becomes clean soon, and
    /// a fraction of the dirty limit, so that several runs are in flight while more data becomes dirty.
    fn run_bytes(&self) -> u64 {
        let Some(file) = self.files.any() else {
            return RUN_BYTES.start;
        };
        let throttle = file.host.space().cache().throttle();
        let (chunk, limit) = (throttle.chunk_bytes(), throttle.limit_bytes());
        let part = (limit / 8).max(MIN_RUN_BYTES);
        let behind = (chunk / 50).clamp(BEHIND_BYTES, RUN_BYTES.end / 2);
        let behind_bytes = &self.shared.behind_bytes;
        behind_bytes.store(behind.min(part), Ordering::Relaxed);
        (chunk / 4).clamp(RUN_BYTES.start, RUN_BYTES.end).min(part)
    }
}
