//! What throttling does, told to whoever listens. When nobody listens it costs one relaxed load where something happens,
//! and nothing where writers run free.

use std::time::Duration;

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A writer is about to pause.
    Paused {
        /// What it dirtied since it was here last.
        dirtied_bytes: u64,
        /// For how long.
        pause: Duration,
        /// Dirty memory of the device.
        dirty_bytes: u64,
    },
    /// A writer has waited for room at the hard limit.
    Waited {
        /// The room that it asked for.
        bytes: u64,
        /// For how long.
        waited: Duration,
        /// Whether it got it.
        ok: bool,
    },
    /// Other limits hold.
    LimitChanged {
        /// The process's, not this device's.
        of_process: bool,
        /// From here on the flusher writes without being asked.
        background_bytes: u64,
        /// Never more dirty than this.
        limit_bytes: u64,
    },
    /// A window of the bandwidth's measurement has ended.
    Bandwidth {
        /// What the device takes, smoothed, in bytes a second.
        bandwidth_bytes_per_s: u64,
        /// What each writer may dirty at the setpoint, in bytes a second.
        ratelimit_bytes_per_s: u64,
        /// Dirty memory of the device.
        dirty_bytes: u64,
    },
}

/// Hears of what happens.
///
/// Called by the thread that it happens to, with locks of the cache's callers held: be quick, and do no I/O on the same
/// volume.
pub trait Listener: Send + Sync {
    /// `event` has just happened, or is about to.
    fn event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> Listener for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

/// Those who listen to one throttle.
pub(crate) type Listeners = throughline_block::Listeners<dyn Listener>;

/// Ends the subscription when dropped. What happens at that moment may still be told.
pub type Subscription = throughline_block::Subscription<dyn Listener>;

/// Tells those who listen now. The event is made only if there is anyone.
pub(crate) fn tell(listeners: &Listeners, event: impl FnOnce() -> Event) {
    if let Some(list) = listeners.now() {
        let event = event();
        list.iter().for_each(|listener| listener.event(&event));
    }
}
