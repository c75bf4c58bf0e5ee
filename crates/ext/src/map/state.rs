//! In-memory state of an inode's mapping: ranges being allocated, a lock-free copy of the size, and an epoch
//! that validates each thread's cached extents.
//!
//! A read or overwrite of a mapped block writes no shared state: the size and the epoch are only read, and
//! the cached extents are per thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use throughline_journal::Tid;
use throughline_locks::{Condvar, Mutex};

use super::kind::{Kind, Mapping};

/// Epochs are unique across all inodes of all volumes in the process, so an epoch identifies one state of one
/// mapping.
static EPOCHS: AtomicU64 = AtomicU64::new(1);

fn next_epoch() -> u64 {
    EPOCHS.fetch_add(1, Ordering::Relaxed)
}

/// The mapping state of an inode in memory.
pub(crate) struct State {
    /// Changes with each change of the mapping.
    epoch: AtomicU64,
    /// The size in bytes plus one, for regular files not stored inline; 0 while unknown, and for all others.
    size: AtomicU64,
    /// The tick of the last change of the times; see [`crate::file`].
    pub(crate) touched: AtomicU64,
    /// The newest transaction that marked data as unwritten, or unmapped it in a cluster that stays; 0: none.
    zeroed: AtomicU32,
    pending: Mutex<Vec<(u64, u64)>>,
    ended: Condvar,
}

impl Default for State {
    fn default() -> Self {
        Self {
            epoch: AtomicU64::new(next_epoch()),
            size: AtomicU64::new(0),
            touched: AtomicU64::new(0),
            zeroed: AtomicU32::new(0),
            pending: Mutex::new(Vec::new()),
            ended: Condvar::new(),
        }
    }
}

impl State {
    /// Call before the mapping changes, with its lock held exclusively.
    pub(super) fn changed(&self) {
        self.epoch.store(next_epoch(), Ordering::Release);
    }

    /// The size, if known without reading the inode.
    pub(super) fn known_size(&self) -> Option<u64> {
        self.size.load(Ordering::Acquire).checked_sub(1)
    }

    /// Records the size after a change or lookup, under the lock of the inode's image. `None` for anything
    /// but a regular file with its data in blocks.
    pub(super) fn set_known_size(&self, size: Option<u64>) {
        self.size
            .store(size.map_or(0, |s| s.saturating_add(1)), Ordering::Release);
    }

    /// Records that data became unwritten in `tid`, or was unmapped in a cluster that stays: until that is
    /// durable, the committed state still shows the old contents of these blocks. The mapping's lock is held
    /// exclusively.
    pub(super) fn set_zeroed(&self, tid: Tid) {
        self.zeroed.store(tid.0, Ordering::Release);
    }

    /// The transaction that must be durable before unwritten blocks, or holes in a cluster, are overwritten;
    /// `None` if there is none.
    pub(crate) fn zeroed(&self) -> Option<Tid> {
        match self.zeroed.load(Ordering::Acquire) {
            0 => None,
            tid => Some(Tid(tid)),
        }
    }

    /// Waits until no other thread allocates in file blocks `from..to`, then excludes others from them until
    /// [`State::allocated`]. A thread that holds a range of a file must not request an overlapping one.
    pub(crate) fn allocate(&self, (from, to): (u64, u64)) {
        let mut pending = self.pending.lock();
        while pending.iter().any(|(f, t)| *f < to && from < *t) {
            self.ended.wait(&mut pending);
        }
        pending.push((from, to));
    }

    /// Ends what [`State::allocate`] began.
    pub(crate) fn allocated(&self, range: (u64, u64)) {
        let mut pending = self.pending.lock();
        if let Some(at) = pending.iter().position(|p| *p == range) {
            pending.swap_remove(at);
        }
        drop(pending);
        self.ended.notify_all();
    }
}

/// Number of extents cached per thread.
const REMEMBERED: usize = 4;

#[derive(Clone, Copy)]
struct Seen {
    epoch: u64,
    first: u64,
    mapping: Mapping,
}

const NOTHING: Seen = Seen {
    epoch: 0,
    first: 0,
    mapping: Mapping {
        kind: Kind::Hole,
        len_blocks: 0,
    },
};

thread_local! {
    static SEEN: Cell<([Seen; REMEMBERED], usize)> = const { Cell::new(([NOTHING; REMEMBERED], 0)) };
}

impl State {
    /// This thread's cached mapping at `block`, if still valid.
    pub(super) fn recall(&self, block: u64) -> Option<Mapping> {
        let epoch = self.epoch.load(Ordering::Acquire);
        let (seen, _) = SEEN.get();
        let hit = seen.iter().find(|s| {
            s.epoch == epoch
                && (s.first..s.first + u64::from(s.mapping.len_blocks)).contains(&block)
        })?;
        Some(hit.mapping.behind((block - hit.first) as u32))
    }

    /// The epoch for [`State::remember`]; read it before the lookup.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Caches the mapping at `first`, looked up in `epoch`.
    pub(super) fn remember(epoch: u64, first: u64, mapping: Mapping) {
        let (mut seen, next) = SEEN.get();
        seen[next] = Seen {
            epoch,
            first,
            mapping,
        };
        SEEN.set((seen, (next + 1) % REMEMBERED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throughline_extfmt::FsBlock;

    #[test]
    fn a_change_forgets() {
        let state = State::default();
        let mapping = Mapping {
            kind: Kind::Data(FsBlock(100)),
            len_blocks: 8,
        };
        State::remember(state.epoch(), 4, mapping);
        let behind = Mapping {
            kind: Kind::Data(FsBlock(103)),
            len_blocks: 5,
        };
        assert_eq!(state.recall(7), Some(behind));
        assert_eq!(state.recall(12), None);
        assert_eq!(State::default().recall(7), None);
        state.changed();
        assert_eq!(state.recall(7), None);
    }

    #[test]
    fn overlapping_allocations_wait() {
        let state = State::default();
        let order = Mutex::new(Vec::new());
        state.allocate((0, 10));
        state.allocate((10, 20));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                state.allocate((5, 8));
                order.lock().push("second");
            });
            order.lock().push("first");
            state.allocated((0, 10));
        });
        assert_eq!(*order.lock(), ["first", "second"]);
    }
}
