//! The source of the times that are written to a volume.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A source of the current time: the system's clock, or one that the opener of a volume provides. Any `Fn()
/// -> SystemTime` is a clock.
///
/// It determines the times that are written to the volume: those of inodes, of the superblock and of
/// commits. Intervals and timeouts use the system's monotonic clock.
pub trait Clock: Send + Sync {
    /// The current time. Called often, and by several threads.
    fn now(&self) -> SystemTime;
}

impl<F: Fn() -> SystemTime + Send + Sync> Clock for F {
    fn now(&self) -> SystemTime {
        self()
    }
}

/// A clock that several owners share.
#[derive(Clone)]
pub struct SharedClock(Option<Arc<dyn Clock>>);

impl SharedClock {
    /// The system's clock.
    pub const SYSTEM: Self = Self(None);

    /// Shares a clock.
    pub fn new(clock: impl Clock + 'static) -> Self {
        Self(Some(Arc::new(clock)))
    }

    /// The time since 1970; zero for a time before that.
    pub fn since_epoch(&self) -> Duration {
        let now = match &self.0 {
            Some(clock) => clock.now(),
            None => SystemTime::now(),
        };
        now.duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

impl Default for SharedClock {
    fn default() -> Self {
        Self::SYSTEM
    }
}

impl fmt::Debug for SharedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "the caller's clock",
            None => "the system's clock",
        })
    }
}
