//! Events of the throttle for listeners. Without listeners the cost is one relaxed load per event, and
//! nothing while writers run free.

use std::time::Duration;

/// An event of the throttle.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A writer is about to pause.
    Paused {
        /// Bytes it dirtied since its last balance call.
        dirtied_bytes: u64,
        /// Length of the pause.
        pause: Duration,
        /// Dirty bytes of the device.
        dirty_bytes: u64,
    },
    /// A writer has waited for room at the hard limit.
    Waited {
        /// Bytes requested.
        bytes: u64,
        /// Length of the wait.
        waited: Duration,
        /// Whether the room was granted.
        ok: bool,
    },
    /// Limits have changed.
    LimitChanged {
        /// True for the process's limits, false for this device's.
        of_process: bool,
        /// Threshold from which the flusher writes in the background.
        background_bytes: u64,
        /// Hard limit of dirty memory.
        limit_bytes: u64,
    },
    /// A measurement window of the bandwidth has ended.
    Bandwidth {
        /// Smoothed bandwidth of the device, in bytes per second.
        bandwidth_bytes_per_s: u64,
        /// What each writer may dirty at the setpoint, in bytes per second.
        ratelimit_bytes_per_s: u64,
        /// Dirty bytes of the device.
        dirty_bytes: u64,
    },
}

/// Receives events.
///
/// Called on the thread that causes the event, possibly with locks of the cache's callers held: return
/// quickly, and do no I/O on the same volume.
pub trait Listener: Send + Sync {
    /// `event` has just happened or is about to happen.
    fn event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> Listener for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

/// The listeners of one throttle.
pub(crate) type Listeners = throughline_block::Listeners<dyn Listener>;

/// Ends the subscription when dropped. An event that is being delivered at that moment may still arrive.
pub type Subscription = throughline_block::Subscription<dyn Listener>;

/// Delivers an event to the current listeners. The event is constructed only if there are any.
pub(crate) fn emit(listeners: &Listeners, event: impl FnOnce() -> Event) {
    if let Some(list) = listeners.now() {
        let event = event();
        list.iter().for_each(|listener| listener.event(&event));
    }
}
