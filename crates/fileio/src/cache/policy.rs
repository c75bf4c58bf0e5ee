//! Eviction order of clean folios: S3-FIFO, weighted by bytes.
//!
//! ```text
//!   new ──► small (a tenth) ──not used──► out, remembered in ghost ──asked for again──┐
//!             └──used──► main ──not used──► out                                       │
//!                         ▲ └──used──► to the back, one use less                      │
//!                         └───────────────────────────────────────────────────────────┘
//! ```
//!
//! Folios of a scan pass through the small queue and are evicted; they never displace folios in use. (Yang et
//! al., *FIFO queues are all you need for cache eviction*, SOSP 2023.)
//!
//! Folios of a run of reads or writes that is too long to keep are evicted first, before the small queue, and
//! leave no ghost.
//!
//! The queues hold plain data, not folios: an entry whose folio is gone is detected when its turn comes. If
//! such entries may be more than half of all, they are removed, so that they do not accumulate where nothing
//! is ever evicted.
//!
//! Only idle folios are queued. An entry whose folio is found busy (dirty, under write-back) is dropped; the
//! folio is queued again when it is clean.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use throughline_locks::{Mutex, Rank};

/// Divisor of the queued bytes: the small queue's share.
const SMALL_SHARE: u64 = 10;

/// Number of stale entries (whose folios are gone) that is always tolerated.
const STALE_ENTRIES: usize = 1024;

/// What the queues store for a folio.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) space: u64,
    /// Offset of the folio in the file.
    pub(crate) start: u64,
    pub(crate) id: u64,
    pub(crate) bytes: u64,
    /// Created by a long run.
    pub(crate) streamed: bool,
}

impl Entry {
    /// Key of a ghost: the place in the file, not the folio that was there.
    fn place(&self) -> (u64, u64) {
        (self.space, self.start)
    }
}

/// The queue that an entry came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Folios of long runs, evicted first.
    Streamed,
    Small,
    Main,
}

/// See the module. Never called with a span locked.
pub(crate) struct Policy {
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    streamed: Fifo,
    small: Fifo,
    main: Fifo,
    /// Entries evicted unused from the small queue, limited to the size of the budget.
    ghost: VecDeque<Entry>,
    ghost_bytes: u64,
    /// Latest folio id by place.
    ghosts: HashMap<(u64, u64), u64, FixedState>,
    /// Estimated number of stale entries.
    stale: usize,
}

impl Queues {
    fn entries(&self) -> usize {
        let queues = [&self.streamed, &self.small, &self.main];
        queues.iter().map(|queue| queue.entries.len()).sum()
    }
}

#[derive(Default)]
struct Fifo {
    entries: VecDeque<Entry>,
    bytes: u64,
}

impl Fifo {
    fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    fn sift(&mut self, is_there: &impl Fn(&Entry) -> bool) {
        self.entries.retain(is_there);
        self.entries.shrink_to_fit();
        self.bytes = self.entries.iter().map(|entry| entry.bytes).sum();
    }
}

impl Policy {
    pub(crate) fn new() -> Policy {
        Policy {
            queues: Mutex::ranked(Rank::Eviction, Queues::default()),
        }
    }

    /// Queues an idle folio: in the main queue if its place was evicted recently, else in the streamed or
    /// small queue.
    pub(crate) fn add(&self, entry: Entry) {
        let mut queues = self.queues.lock();
        match queues.ghosts.remove(&entry.place()) {
            Some(_) => queues.main.push(entry),
            None if entry.streamed => queues.streamed.push(entry),
            None => queues.small.push(entry),
        }
    }

    /// Requeues a used entry at the end of the main queue.
    pub(crate) fn keep(&self, entry: Entry) {
        self.queues.lock().main.push(entry);
    }

    /// Removes the next candidate for eviction. The caller keeps it if it was used.
    pub(crate) fn next(&self, streamed_only: bool) -> Option<(Entry, Queue)> {
        let mut queues = self.queues.lock();
        if let Some(entry) = queues.streamed.pop() {
            return Some((entry, Queue::Streamed));
        }
        if streamed_only {
            return None;
        }
        let all = queues.small.bytes + queues.main.bytes;
        let small_first = queues.small.bytes >= all / SMALL_SHARE;
        let first = if small_first {
            Queue::Small
        } else {
            Queue::Main
        };
        let second = if small_first {
            Queue::Main
        } else {
            Queue::Small
        };
        [first, second].into_iter().find_map(|queue| {
            let fifo = match queue {
                Queue::Main => &mut queues.main,
                _ => &mut queues.small,
            };
            Some((fifo.pop()?, queue))
        })
    }

    /// The number of entries: an upper bound for a pass over them.
    pub(crate) fn len(&self) -> usize {
        let queues = self.queues.lock();
        queues.entries()
    }

    /// Remembers the place of a folio evicted from the small queue. The ghosts cover at most `most_bytes`.
    pub(crate) fn evicted(&self, entry: Entry, most_bytes: u64) {
        let mut queues = self.queues.lock();
        queues.ghosts.insert(entry.place(), entry.id);
        queues.ghost.push_back(entry);
        queues.ghost_bytes += entry.bytes;
        while queues.ghost_bytes > most_bytes {
            let Some(old) = queues.ghost.pop_front() else {
                break;
            };
            queues.ghost_bytes -= old.bytes;
            if queues.ghosts.get(&old.place()) == Some(&old.id) {
                queues.ghosts.remove(&old.place());
            }
        }
    }

    /// Records that `folios` queued folios were dropped other than by eviction. Returns true when
    /// [`Policy::sift`] is due.
    pub(crate) fn gone(&self, folios: usize) -> bool {
        let mut queues = self.queues.lock();
        queues.stale += folios;
        let entries = queues.entries();
        queues.stale > STALE_ENTRIES.max(entries / 2)
    }

    /// Removes the stale entries.
    pub(crate) fn sift(&self, is_there: impl Fn(&Entry) -> bool) {
        let mut queues = self.queues.lock();
        queues.stale = 0;
        queues.streamed.sift(&is_there);
        queues.small.sift(&is_there);
        queues.main.sift(&is_there);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(start: u64) -> Entry {
        Entry {
            space: 1,
            start,
            id: start + 1,
            bytes: 1,
            streamed: false,
        }
    }

    #[test]
    fn used_entries_survive_a_scan() {
        let policy = Policy::new();
        for hot in 0..50 {
            policy.keep(entry(hot));
        }
        for cold in 1000..2000 {
            policy.add(entry(cold));
            let (out, queue) = policy.next(false).expect("there are entries");
            match queue {
                Queue::Main => policy.keep(out),
                _ => policy.evicted(out, 100),
            }
        }
        let left: Vec<u64> = std::iter::from_fn(|| policy.next(false))
            .map(|(entry, _)| entry.start)
            .collect();
        assert!((0..50).all(|hot| left.contains(&hot)));
    }

    #[test]
    fn entries_that_return_soon_go_to_the_main_queue() {
        let policy = Policy::new();
        policy.evicted(entry(7), 10);
        policy.add(entry(7));
        assert_eq!(
            policy.next(false).map(|(_, queue)| queue),
            Some(Queue::Main)
        );
        policy.evicted(entry(7), 10);
        for other in 100..110 {
            policy.evicted(entry(other), 10);
        }
        policy.add(entry(7));
        assert_eq!(
            policy.next(false).map(|(_, queue)| queue),
            Some(Queue::Small)
        );
    }

    #[test]
    fn streamed_entries_are_evicted_first() {
        let policy = Policy::new();
        policy.add(entry(1));
        assert!(policy.next(true).is_none());
        policy.add(Entry {
            streamed: true,
            ..entry(2)
        });
        let out: Vec<_> = std::iter::from_fn(|| policy.next(false))
            .map(|(out, queue)| (out.start, queue))
            .collect();
        assert_eq!(out, [(2, Queue::Streamed), (1, Queue::Small)]);
    }

    #[test]
    fn entries_of_folios_that_are_gone_do_not_pile_up() {
        let policy = Policy::new();
        for round in 0..100_000 {
            policy.add(entry(round));
            if policy.gone(1) {
                policy.sift(|_| false);
            }
        }
        assert!(policy.len() <= 2 * STALE_ENTRIES);
    }
}
