//! The dirty memory of the whole process, in which every [`Throttle`](crate::throttle::Throttle) is counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use throughline_locks::Mutex;

use crate::error::Error;
use crate::throttle::device::Device;
use crate::throttle::law::Position;
use crate::throttle::limits::{DirtyLimits, Thresholds};
use crate::throttle::room::Room;

/// The state of this process.
static PROCESS: LazyLock<Arc<Process>> =
    LazyLock::new(|| Process::new(DirtyLimits::default(), crate::memory::allowed_bytes()));

/// Sets the limits of dirty memory for the whole process: all devices together never exceed them. The
/// defaults are a fifth (limit) and a tenth (background) of the memory that the process may use.
pub fn set_process_limits(limits: DirtyLimits) {
    PROCESS.set_limits(limits);
}

/// State shared by all devices.
pub(crate) struct Process {
    pub(crate) room: Room<Error>,
    /// Of all devices; see [`Throttle::keep`](crate::throttle::Throttle::keep).
    pub(crate) kept_bytes: AtomicU64,
    background_bytes: AtomicU64,
    /// Memory that the process may use: the default limits are fractions of it.
    memory_bytes: u64,
    devices: Mutex<Vec<Weak<Device>>>,
}

impl Process {
    /// The state of this process.
    pub(crate) fn global() -> Arc<Process> {
        Arc::clone(&PROCESS)
    }

    pub(crate) fn new(limits: DirtyLimits, memory_bytes: u64) -> Arc<Process> {
        let thresholds = limits.resolve(memory_bytes);
        Arc::new(Process {
            room: Room::new(thresholds.limit_bytes),
            kept_bytes: AtomicU64::new(0),
            background_bytes: AtomicU64::new(thresholds.background_bytes),
            memory_bytes,
            devices: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn set_limits(&self, limits: DirtyLimits) {
        let thresholds = limits.resolve(self.memory_bytes);
        self.background_bytes
            .store(thresholds.background_bytes, Ordering::Relaxed);
        self.room.set_limit(thresholds.limit_bytes);
        for device in self.devices() {
            device.emit_limits(true, thresholds);
            device.kick();
        }
    }

    pub(crate) fn background_bytes(&self) -> u64 {
        self.background_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn position(&self) -> Position {
        Position {
            dirty_bytes: self.room.used_bytes(),
            thresholds: Thresholds {
                background_bytes: self.background_bytes(),
                limit_bytes: self.room.limit_bytes(),
            },
        }
    }

    /// Whether every flusher should write in the background.
    pub(crate) fn over_background(&self) -> bool {
        self.room.used_bytes() > self.background_bytes() || self.room.is_waited_for()
    }

    pub(crate) fn join(&self, device: &Arc<Device>) {
        let mut devices = self.devices.lock();
        devices.retain(|one| one.strong_count() > 0);
        devices.push(Arc::downgrade(device));
    }

    fn devices(&self) -> Vec<Arc<Device>> {
        let devices = self.devices.lock();
        devices.iter().filter_map(Weak::upgrade).collect()
    }

    /// Wakes every flusher: a thread waits for room that any of them can release.
    pub(crate) fn kick(&self) {
        for device in self.devices() {
            device.kick();
        }
    }

    /// The error that makes waiting for `bytes` pointless: stalled devices hold too much of the room. `None`
    /// if it is not.
    pub(crate) fn pointless_wait(&self, bytes: u64) -> Option<Error> {
        let (mut held, mut why) = (0u64, None);
        for device in self.devices() {
            if let Some(error) = device.room.stuck() {
                held = held.saturating_add(device.room.used_bytes());
                why = Some(error);
            }
        }
        why.filter(|_| held.saturating_add(bytes) > self.room.limit_bytes())
    }
}
