//! [`ReadStream`]: what one open file remembers of its reading.

use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::window::Windows;

/// What is known of one open file's reading. One for each open file, shared by its threads; made by `default`.
///
/// It changes when a read misses the cache or meets a readahead mark, and never on a plain hit: cached reads of many
/// threads on one handle share no written line here.
#[derive(Debug, Default)]
pub struct ReadStream {
    pattern: AtomicU8,
    windows: Mutex<Windows>,
}

/// How a handle will be read, as its owner says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Pattern {
    /// Nothing is known: windows follow what is seen.
    Normal = 0,
    /// Windows twice as large.
    Sequential = 1,
    /// No windows.
    Random = 2,
    /// As `Normal`, and what was read is let go.
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
