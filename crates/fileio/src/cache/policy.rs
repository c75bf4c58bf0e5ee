//! Which clean folio goes first: S3-FIFO over folios, by their bytes.
//!
//! ```text
//!   new ──► small (a tenth) ──not used──► out, remembered in ghost ──asked for again──┐
//!             └──used──► main ──not used──► out                                       │
//!                         ▲ └──used──► to the back, one use less                      │
//!                         └───────────────────────────────────────────────────────────┘
//! ```
//!
//! What a scan brings in passes through the small queue and is gone; it never gets at what is used. (Yang et al., *FIFO
//! queues are all you need for cache eviction*, SOSP 2023.)
//!
//! What a run of reads or writes brings that is too long to be kept goes first, before the small queue, and is
//! remembered nowhere.
//!
//! The queues hold plain data, not folios: an entry whose folio is gone is noticed when its turn comes. So that these do
//! not pile up where nothing is ever evicted, they are sifted out when they are more than half.
//!
//! Only idle folios are queued. One that is found busy (dirty, under write-back) is let go, and queued again when clean.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use parking_lot::Mutex;

/// The small queue's share of all that is queued: one in so many bytes.
const SMALL_SHARE: u64 = 10;

/// So many entries may be of folios that are gone before they are looked for.
const STALE_ENTRIES: usize = 1024;

/// What the queues hold of a folio.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) space: u64,
    /// First file byte of the folio.
    pub(crate) start: u64,
    pub(crate) id: u64,
    pub(crate) bytes: u64,
    /// A long run brought it.
    pub(crate) streamed: bool,
}

impl Entry {
    /// What a ghost is known by: the place in the file, not the folio that was there.
    fn place(&self) -> (u64, u64) {
        (self.space, self.start)
    }
}

/// Which queue an entry was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// What long runs bring: the first to go.
    Streamed,
    Small,
    Main,
}

/// See the module. Nobody who has a span locked comes here.
pub(crate) struct Policy {
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    streamed: Fifo,
    small: Fifo,
    main: Fifo,
    /// Folios that left the small queue without a use, as many bytes as the main queue may have.
    ghost: VecDeque<Entry>,
    ghost_bytes: u64,
    /// The latest id by place.
    ghosts: HashMap<(u64, u64), u64, FixedState>,
    /// About how many entries are of folios that are gone.
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
            queues: Mutex::default(),
        }
    }

    /// Queues an idle folio: behind those in the small queue, or in the main one where it was evicted not long ago.
    pub(crate) fn add(&self, entry: Entry) {
        let mut queues = self.queues.lock();
        match queues.ghosts.remove(&entry.place()) {
            Some(_) => queues.main.push(entry),
            None if entry.streamed => queues.streamed.push(entry),
            None => queues.small.push(entry),
        }
    }

    /// Puts an entry behind those in the main queue: it was used.
    pub(crate) fn keep(&self, entry: Entry) {
        self.queues.lock().main.push(entry);
    }

    /// The next to go, if it was not used.
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

    /// How many entries there are: a bound for who goes through them.
    pub(crate) fn len(&self) -> usize {
        let queues = self.queues.lock();
        queues.entries()
    }

    /// The folio of an entry from the small queue is out. At most `most_bytes` of such are remembered.
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

    /// So many queued folios are gone otherwise than by eviction. True: it is time for [`Policy::sift`].
    pub(crate) fn gone(&self, folios: usize) -> bool {
        let mut queues = self.queues.lock();
        queues.stale += folios;
        let entries = queues.entries();
        queues.stale > STALE_ENTRIES.max(entries / 2)
    }

    /// Drops the entries whose folios are gone.
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
    fn what_is_used_outlives_a_scan() {
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
    fn what_comes_back_soon_goes_to_the_main_queue() {
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
    fn what_a_long_run_brings_goes_first() {
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
