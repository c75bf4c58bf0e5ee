//! [`Chunks`]: the chunks in memory: those that were read, in bounded number, and those that are on their
//! way.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use throughline_locks::{Condvar, Mutex, Rank};

use crate::failure::Failure;

/// The bytes of a chunk.
pub(crate) type Chunk = Arc<Vec<u8>>;

/// A chunk that somebody fetches.
pub(crate) type Pending = Arc<Mutex<Option<Result<Chunk, Failure>>>>;

/// Where a chunk is.
pub(crate) enum Found {
    Ready(Chunk),
    Pending(Pending),
    Missing,
}

#[derive(Default)]
struct State {
    /// With the time of the last use.
    ready: HashMap<u64, (Chunk, u64)>,
    pending: HashMap<u64, Pending>,
    time: u64,
}

pub(crate) struct Chunks {
    state: Mutex<State>,
    /// Notified when a chunk arrives, or fails.
    arrived: Condvar,
    max_ready: usize,
}

impl Chunks {
    pub(crate) fn new(max_ready: usize) -> Chunks {
        Chunks {
            state: Mutex::ranked(Rank::Chunks, State::default()),
            arrived: Condvar::new(),
            max_ready: max_ready.max(1),
        }
    }

    pub(crate) fn find(&self, index: u64) -> Found {
        let mut state = self.state.lock();
        state.time = state.time.wrapping_add(1);
        let now = state.time;
        if let Some((chunk, used)) = state.ready.get_mut(&index) {
            *used = now;
            return Found::Ready(Arc::clone(chunk));
        }
        match state.pending.get(&index) {
            Some(pending) => Found::Pending(Arc::clone(pending)),
            None => Found::Missing,
        }
    }

    /// The chunks of a range that are neither here nor on their way.
    pub(crate) fn missing(&self, range: Range<u64>) -> Vec<u64> {
        let state = self.state.lock();
        let is_known =
            |index: &u64| state.ready.contains_key(index) || state.pending.contains_key(index);
        range.filter(|index| !is_known(index)).collect()
    }

    /// Marks those of `wanted`, in ascending order, that are still missing as on their way, as long as there
    /// are at most `max` of them; but always the one that is `needed`. The caller fetches them: as runs of at
    /// most `run` chunks.
    pub(crate) fn claim(
        &self,
        wanted: &[u64],
        needed: Option<u64>,
        max: u64,
        run: u64,
    ) -> Vec<Range<u64>> {
        let mut state = self.state.lock();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for index in wanted.iter().copied() {
            let is_known = state.ready.contains_key(&index) || state.pending.contains_key(&index);
            let is_room = (state.pending.len() as u64) < max || needed == Some(index);
            if is_known || !is_room {
                continue;
            }
            state.pending.insert(index, Pending::default());
            match runs.last_mut() {
                Some(last) if last.end == index && index.saturating_sub(last.start) < run => {
                    last.end = index.saturating_add(1);
                }
                _ => runs.push(index..index.saturating_add(1)),
            }
        }
        runs
    }

    /// A chunk that was on its way has arrived or failed. A chunk that failed is missing again.
    pub(crate) fn finish(&self, index: u64, outcome: Result<Chunk, Failure>) {
        let mut state = self.state.lock();
        if let Ok(chunk) = &outcome {
            state.keep(index, Arc::clone(chunk), self.max_ready);
        }
        if let Some(pending) = state.pending.remove(&index) {
            *pending.lock() = Some(outcome);
        }
        drop(state);
        self.arrived.notify_all();
    }

    /// A chunk that was found elsewhere.
    pub(crate) fn keep(&self, index: u64, chunk: Chunk) {
        self.state.lock().keep(index, chunk, self.max_ready);
    }

    /// Waits for a chunk. Whoever fetches it finishes it within a bound.
    pub(crate) fn wait(&self, pending: &Pending) -> Result<Chunk, Failure> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = pending.lock().clone() {
                return outcome;
            }
            self.arrived.wait(&mut state);
        }
    }
}

impl State {
    fn keep(&mut self, index: u64, chunk: Chunk, max: usize) {
        self.time = self.time.wrapping_add(1);
        self.ready.insert(index, (chunk, self.time));
        while self.ready.len() > max {
            let oldest = self.ready.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(index, _)| *index) else {
                return;
            };
            self.ready.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_chunks_are_claimed_once_in_runs() {
        let chunks = Chunks::new(2);
        chunks.keep(3, Chunk::default());
        let wanted = chunks.missing(0..8);
        assert_eq!(wanted, [0, 1, 2, 4, 5, 6, 7]);
        assert_eq!(chunks.claim(&wanted, None, 5, 2), [0..2, 2..3, 4..6]);
        // No room is left, but what is needed is claimed.
        assert_eq!(chunks.claim(&wanted, Some(7), 5, 2), vec![7..8; 1]);
        assert!(matches!(chunks.find(3), Found::Ready(_)));
        assert!(matches!(chunks.find(6), Found::Missing));
        let Found::Pending(first) = chunks.find(0) else {
            panic!("not claimed");
        };
        chunks.finish(0, Err(Failure::NotFound));
        assert!(chunks.wait(&first).is_err());
        assert!(matches!(chunks.find(0), Found::Missing), "tried again");
    }

    #[test]
    fn the_least_recently_used_chunk_goes() {
        let chunks = Chunks::new(2);
        chunks.keep(0, Chunk::default());
        chunks.keep(1, Chunk::default());
        chunks.find(0);
        chunks.keep(2, Chunk::default());
        assert_eq!(chunks.missing(0..3), [1]);
    }
}
