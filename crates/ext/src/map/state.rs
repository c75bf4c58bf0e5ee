//! What an inode's mapping keeps in memory: ranges being allocated, the size without a lock, and the epoch by which each
//! thread knows whether the extent that it saw last is still true.
//!
//! A read or an overwrite of a mapped block touches nothing here that another thread's I/O writes: the size and the epoch
//! are only read, and the cached extent is the thread's own.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use throughline_journal::Tid;

use super::kind::{Kind, Mapping};

/// Epochs are unique over all inodes of all volumes of the process, so that one number names a mapping at a time.
static EPOCHS: AtomicU64 = AtomicU64::new(1);

fn next_epoch() -> u64 {
    EPOCHS.fetch_add(1, Ordering::Relaxed)
}

/// The mapping's own state in an inode in memory.
pub(crate) struct State {
    /// Changes with each change of the mapping.
    epoch: AtomicU64,
    /// The size in bytes plus one, for ordinary files; 0 while it is not known, and for all others.
    size: AtomicU64,
    /// Tick of the last change of the times, see [`crate::file`].
    pub(crate) touched: AtomicU64,
    /// The newest transaction that made data unwritten; 0: none.
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
    /// The mapping is about to change; called with its lock held exclusively.
    pub(super) fn changed(&self) {
        self.epoch.store(next_epoch(), Ordering::Release);
    }

    /// The size, if it is known without looking at the inode.
    pub(super) fn known_size(&self) -> Option<u64> {
        self.size.load(Ordering::Acquire).checked_sub(1)
    }

    /// The size changed, or was looked up; called under the lock of the inode's image. `None` for a file that is no ordinary
    /// one.
    pub(super) fn set_known_size(&self, size: Option<u64>) {
        self.size
            .store(size.map_or(0, |s| s.saturating_add(1)), Ordering::Release);
    }

    /// Data became unwritten in `tid`: until that is durable, the committed state shows what these blocks hold. The mapping's lock is
    /// held exclusively.
    pub(super) fn set_zeroed(&self, tid: Tid) {
        self.zeroed.store(tid.0, Ordering::Release);
    }

    /// The transaction that has to be durable before unwritten blocks are written; `None` where all are.
    pub(crate) fn zeroed(&self) -> Option<Tid> {
        match self.zeroed.load(Ordering::Acquire) {
            0 => None,
            tid => Some(Tid(tid)),
        }
    }

    /// Waits until nobody else allocates in the file blocks `from..to`, then keeps others out of them until
    /// [`State::allocated`]. Whoever holds one of a file does not ask for another that overlaps it.
    pub(crate) fn allocate(&self, (from, to): (u64, u64)) {
        let mut pending = self.pending.lock();
        while pending.iter().any(|(f, t)| *f < to && from < *t) {
            self.ended.wait(&mut pending);
        }
        pending.push((from, to));
    }

    /// The end of what began with [`State::allocate`].
    pub(crate) fn allocated(&self, range: (u64, u64)) {
        let mut pending = self.pending.lock();
        if let Some(at) = pending.iter().position(|p| *p == range) {
            pending.swap_remove(at);
        }
        drop(pending);
        self.ended.notify_all();
    }
}

/// Extents that a thread remembers.
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
    /// What this thread knows to be at `block`, from an earlier [`State::remember`] that still holds.
    pub(super) fn recall(&self, block: u64) -> Option<Mapping> {
        let epoch = self.epoch.load(Ordering::Acquire);
        let (seen, _) = SEEN.get();
        let hit = seen.iter().find(|s| {
            s.epoch == epoch
                && (s.first..s.first + u64::from(s.mapping.len_blocks)).contains(&block)
        })?;
        Some(hit.mapping.behind((block - hit.first) as u32))
    }

    /// The epoch to remember a lookup by: taken before the lookup.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Remembers what is at `first`, looked up in `epoch`.
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
