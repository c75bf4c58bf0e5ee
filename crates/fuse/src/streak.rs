//! [`Streak`]: detects a sequential stream in the `O_DIRECT` reads of a handle.
//!
//! The device idles while data is copied to a program that only then requests the next piece. So a stream is
//! read ahead into our cache and dropped behind the reader; the program sees the same data either way. Random
//! reads bypass the cache, as requested.

use std::ops::Range;

use throughline_locks::Mutex;

/// A read that starts within this distance of the streak's end belongs to it: the kernel sends a large read
/// in pieces, which arrive in any order.
const REACH_BYTES: u64 = 4 << 20;
/// A streak longer than this is a stream: more than one call of most programs.
const STREAM_BYTES: u64 = 8 << 20;
/// The cache is dropped in units of the largest folio.
const FOLIO_BYTES: u64 = 2 << 20;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Streak(Mutex<State>);

#[derive(Default)]
struct State {
    start: u64,
    end: u64,
    given_back: u64,
}

impl Streak {
    /// Records a read. `None`: it is not part of a stream. Otherwise the range behind the stream that can be
    /// dropped from the cache, each byte once; usually empty.
    pub(crate) fn read(&self, range: Range<u64>) -> Option<Range<u64>> {
        let mut state = self.0.lock();
        let near = state.end.saturating_sub(REACH_BYTES)..=state.end.saturating_add(REACH_BYTES);
        if !near.contains(&range.start) {
            *state = State {
                start: range.start,
                end: range.end,
                given_back: range.start / FOLIO_BYTES * FOLIO_BYTES,
            };
            return None;
        }
        state.end = state.end.max(range.end);
        if state.end - state.start <= STREAM_BYTES {
            return None;
        }
        let behind = (state.end - STREAM_BYTES) / FOLIO_BYTES * FOLIO_BYTES;
        let from = state.given_back.min(behind);
        state.given_back = behind.max(from);
        Some(from..behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_stream_is_detected_by_its_length_in_any_order_of_its_pieces() {
        let streak = Streak::default();
        let pieces = [1, 0, 3, 2, 5, 4, 7, 6].map(|at| at * MIB);
        assert!(pieces.iter().all(|at| streak.read(*at..at + MIB).is_none()));
        let mut given_back = 0;
        for at in (8..40).map(|at| at * MIB) {
            let behind = streak.read(at..at + MIB).unwrap();
            assert!(behind.end + STREAM_BYTES <= at + MIB);
            assert!(behind.is_empty() || behind.start == given_back);
            given_back = given_back.max(behind.end);
        }
        assert_eq!(given_back, 32 * MIB);
    }

    #[test]
    fn random_reads_are_not_a_stream() {
        let streak = Streak::default();
        for at in [0, 100, 30, 70, 31, 90].map(|at| at * MIB) {
            assert_eq!(streak.read(at..at + MIB), None);
        }
        assert_eq!(streak.read(u64::MAX - 1..u64::MAX), None);
    }
}
