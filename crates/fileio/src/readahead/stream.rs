//! [`ReadStream`]: the read history of one open file.

use std::sync::atomic::{AtomicU8, Ordering};

use throughline_locks::{Mutex, MutexGuard, Rank};

use super::window::Windows;

/// The read history of one open file. Create one with `default` per open file; its threads share it.
///
/// It changes when a read misses the cache or meets a readahead mark, never on a plain hit: cached reads by
/// many threads of one handle write no shared cache line here.
#[derive(Debug)]
pub struct ReadStream {
    pattern: AtomicU8,
    windows: Mutex<Windows>,
}

impl Default for ReadStream {
    fn default() -> Self {
        Self {
            pattern: AtomicU8::new(0),
            windows: Mutex::ranked(Rank::ReadWindows, Windows::default()),
        }
    }
}

/// The access pattern that the user of a handle announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Pattern {
    /// None: windows adapt to the observed accesses.
    Normal = 0,
    /// Windows are twice as large.
    Sequential = 1,
    /// No readahead.
    Random = 2,
    /// As `Normal`, and folios are dropped after they were read.
    Once = 3,
}

impl ReadStream {
    pub(crate) fn pattern(&self) -> Pattern {
        match self.pattern.load(Ordering::Relaxed) {
            1 => Pattern::Sequential,
            2 => Pattern::Random,
            3 => Pattern::Once,
            _ => Pattern::Normal,
        }
    }

    pub(crate) fn set_pattern(&self, pattern: Pattern) {
        self.pattern.store(pattern as u8, Ordering::Relaxed);
        if pattern == Pattern::Random {
            self.windows.lock().clear();
        }
    }

    pub(crate) fn windows(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock()
    }
}
