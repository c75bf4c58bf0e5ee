//! [`FileLock`]: what I/O on a file holds shared, and whoever takes its blocks away or moves them holds alone.
//!
//! Readers on several processors should share no line of memory (founding report 2), which takes a kilobyte a lock: much, where
//! tens of thousands of files are open and each is used by one thread at a time. So a lock begins as one word, *narrow*, and gets
//! the kilobyte, *wide*, once threads have taken turns on it so often that it pays, as long as few others have it.
//!
//! ```text
//! alone:   narrow alone, then wide alone where it is there
//! shared:  wide shared where it is there, else narrow shared
//! widened: by who holds narrow shared
//! ```
//!
//! Why nobody is in beside who is alone: with both on narrow, narrow sees to that. Of one who holds wide, wide was made by somebody
//! who held narrow shared. Whoever is alone after that has seen it, as narrow orders the two, and waits for all who hold it;
//! whoever was alone before had let narrow go.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::sync::{
    RwLock, RwLockReadGuard, RwLockWriteGuard, ShardedLock, ShardedLockReadGuard,
    ShardedLockWriteGuard, this_thread,
};

/// Changes from one thread to another until a lock is widened.
const TURNS: u32 = 64;
/// Wide locks of the process: 2 MiB of them.
const MOST_WIDE: usize = 2048;

static WIDE: AtomicUsize = AtomicUsize::new(0);

/// See the module. Neither kind of holding is to be nested.
#[derive(Default)]
pub struct FileLock {
    narrow: RwLock<()>,
    wide: OnceLock<ShardedLock<()>>,
    /// Who held narrow shared last. With `turns`, a hint, and a lost change of it is no harm.
    last: AtomicUsize,
    turns: AtomicU32,
}

/// Held shared, until dropped.
#[must_use = "it is let go when this is dropped"]
pub struct FileShared<'a> {
    _narrow: Option<RwLockReadGuard<'a, ()>>,
    _wide: Option<ShardedLockReadGuard<'a, ()>>,
}

/// Held alone, until dropped.
#[must_use = "it is let go when this is dropped"]
pub struct FileAlone<'a> {
    _wide: Option<ShardedLockWriteGuard<'a, ()>>,
    _narrow: RwLockWriteGuard<'a, ()>,
}

impl FileLock {
    /// Beside others who share it.
    pub fn shared(&self) -> FileShared<'_> {
        self.shared_after(TURNS)
    }

    /// As [`FileLock::shared`], and so many turns widen it.
    pub(crate) fn shared_after(&self, turns: u32) -> FileShared<'_> {
        if let Some(wide) = self.wide.get() {
            let guard = wide.read().unwrap_or_else(|poisoned| poisoned.into_inner());
            return FileShared {
                _narrow: None,
                _wide: Some(guard),
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
        }
    }

    /// Makes the wide lock, unless too many have one. The caller holds `narrow` shared.
    fn widen(&self) {
        // Whoever is refused asks again only after as many turns more.
        self.turns.store(0, Ordering::Relaxed);
        if WIDE.load(Ordering::Relaxed) < MOST_WIDE {
            self.wide.get_or_init(|| {
                WIDE.fetch_add(1, Ordering::Relaxed);
                ShardedLock::new(())
            });
        }
    }

    /// With nobody beside.
    pub fn alone(&self) -> FileAlone<'_> {
        let narrow = self.narrow.write();
        let wide = self.wide.get();
        FileAlone {
            _wide: wide.map(|wide| {
                wide.write()
                    .unwrap_or_else(|poisoned| poisoned.into_inner())
            }),
            _narrow: narrow,
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
