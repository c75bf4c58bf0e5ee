//! [`FileLock`]: held shared by I/O on a file, and exclusively by operations that remove or move its blocks.
//!
//! Readers on different CPUs should share no cache line (founding report 2). That takes a kilobyte per
//! lock: too much when tens of thousands of files are open and each is used by one thread at a time. So a
//! lock starts *narrow*, as one word. It becomes *wide* (the kilobyte) when enough changes of thread show
//! that this pays, unless the process already has too many wide locks.
//!
//! ```text
//! exclusive:  narrow exclusive, then wide exclusive if it exists
//! shared:     wide shared if it exists, else narrow shared
//! widen:      by a holder of narrow shared
//! ```
//!
//! Why the lock excludes: if both holders hold narrow, narrow excludes them. If the shared holder holds wide,
//! wide was created by a thread that held narrow shared. An exclusive holder that took narrow after that
//! thread sees wide, because narrow orders the two, and waits for every holder of wide. An exclusive holder
//! that took narrow earlier released it before wide was created.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::sync::{
    Place, RwLock, RwLockReadGuard, RwLockWriteGuard, ShardedLock, ShardedLockReadGuard,
    ShardedLockWriteGuard, this_thread,
};

/// Number of thread changes after which a lock is widened.
const TURNS: u32 = 64;
/// Maximum number of wide locks in the process: 2 MiB.
const MAX_WIDE_LOCKS: usize = 2048;

static WIDE: AtomicUsize = AtomicUsize::new(0);

/// See the module. The caller enters the lock's place in the order of locks, before it waits for it.
#[derive(Default)]
pub struct FileLock {
    narrow: RwLock<()>,
    wide: OnceLock<ShardedLock<()>>,
    /// The last thread that held narrow shared. Like `turns` a hint: a lost update does no harm.
    last: AtomicUsize,
    turns: AtomicU32,
}

/// Shared ownership, until dropped.
#[must_use = "the lock is released when this is dropped"]
pub struct FileShared<'a> {
    _narrow: Option<RwLockReadGuard<'a, ()>>,
    _wide: Option<ShardedLockReadGuard<'a, ()>>,
    _place: Place,
}

/// Exclusive ownership, until dropped.
#[must_use = "the lock is released when this is dropped"]
pub struct FileExclusive<'a> {
    _wide: Option<ShardedLockWriteGuard<'a, ()>>,
    _narrow: RwLockWriteGuard<'a, ()>,
    _place: Place,
}

impl FileLock {
    /// Acquires the lock shared.
    pub fn shared(&self, place: Place) -> FileShared<'_> {
        self.shared_after(TURNS, place)
    }

    /// As [`FileLock::shared`], with the number of thread changes after which the lock is widened.
    pub(crate) fn shared_after(&self, turns: u32, place: Place) -> FileShared<'_> {
        if let Some(wide) = self.wide.get() {
            let guard = wide.read().unwrap_or_else(|poisoned| poisoned.into_inner());
            return FileShared {
                _narrow: None,
                _wide: Some(guard),
                _place: place,
            };
        }
        let narrow = self.narrow.read();
        let me = this_thread();
        if self.last.load(Ordering::Relaxed) != me {
            self.last.store(me, Ordering::Relaxed);
            if self.turns.fetch_add(1, Ordering::Relaxed) >= turns {
                self.widen();
            }
        }
        FileShared {
            _narrow: Some(narrow),
            _wide: None,
            _place: place,
        }
    }

    /// Creates the wide lock, unless there are too many. The caller holds `narrow` shared.
    fn widen(&self) {
        // If refused, try again only after as many changes.
        self.turns.store(0, Ordering::Relaxed);
        if WIDE.load(Ordering::Relaxed) < MAX_WIDE_LOCKS {
            self.wide.get_or_init(|| {
                WIDE.fetch_add(1, Ordering::Relaxed);
                ShardedLock::new(())
            });
        }
    }

    /// Acquires the lock exclusively.
    pub fn exclusive(&self, place: Place) -> FileExclusive<'_> {
        let narrow = self.narrow.write();
        let wide = self.wide.get();
        FileExclusive {
            _wide: wide.map(|wide| {
                wide.write()
                    .unwrap_or_else(|poisoned| poisoned.into_inner())
            }),
            _narrow: narrow,
            _place: place,
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if self.wide.get().is_some() {
            WIDE.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
