//! The dirty memory of one device: its room, its background threshold and its flusher's bell.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::throttle::limits::{DirtyLimits, Thresholds};
use crate::throttle::room::Room;

type Bell = Box<dyn Fn() + Send + Sync>;

/// See the module.
pub(crate) struct Device {
    pub(crate) room: Room<Error>,
    background_bytes: AtomicU64,
    /// The cache's budget: the default limits are parts of it.
    budget_bytes: AtomicU64,
    bell: OnceLock<Bell>,
}

impl Device {
    pub(crate) fn new(limits: DirtyLimits, budget_bytes: u64) -> Device {
        let thresholds = limits.resolve(budget_bytes);
        Device {
            room: Room::new(thresholds.limit_bytes),
            background_bytes: AtomicU64::new(thresholds.background_bytes),
            budget_bytes: AtomicU64::new(budget_bytes),
            bell: OnceLock::new(),
        }
    }

    pub(crate) fn set_limits(&self, limits: DirtyLimits) -> Thresholds {
        let thresholds = limits.resolve(self.budget_bytes.load(Ordering::Relaxed));
        self.background_bytes
            .store(thresholds.background_bytes, Ordering::Relaxed);
        self.room.set_limit(thresholds.limit_bytes);
        self.kick();
        thresholds
    }

    pub(crate) fn set_budget_bytes(&self, bytes: u64) {
        self.budget_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn thresholds(&self) -> Thresholds {
        Thresholds {
            background_bytes: self.background_bytes.load(Ordering::Relaxed),
            limit_bytes: self.room.limit_bytes(),
        }
    }

    pub(crate) fn over_background(&self) -> bool {
        self.room.used_bytes() > self.background_bytes.load(Ordering::Relaxed)
            || self.room.is_waited_for()
    }

    /// What wakes the flusher; the first one given stays.
    pub(crate) fn set_bell(&self, bell: Bell) {
        // A second cache over the same throttle does not exist.
        let _ = self.bell.set(bell);
    }

    /// Wakes the flusher.
    pub(crate) fn kick(&self) {
        if let Some(bell) = self.bell.get() {
            bell();
        }
    }
}
