//! What throttling does, told to whoever listens. When nobody listens it costs one relaxed load where something happens,
//! and nothing where writers run free.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

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

#[derive(Default)]
pub(crate) struct Listeners {
    count: AtomicUsize,
    list: RwLock<Arc<Vec<Arc<dyn Listener>>>>,
}

impl Listeners {
    /// Tells those who listen now. The event is made only if there is anyone.
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let list = Arc::clone(&self.list.read());
        let event = event();
        for listener in list.iter() {
            listener.event(&event);
        }
    }

    fn change(&self, f: impl FnOnce(&mut Vec<Arc<dyn Listener>>)) {
        let mut list = self.list.write();
        let mut changed = Vec::clone(&list);
        f(&mut changed);
        self.count.store(changed.len(), Ordering::Relaxed);
        *list = Arc::new(changed);
    }

    pub(crate) fn subscribe(self: &Arc<Self>, listener: Arc<dyn Listener>) -> Subscription {
        self.change(|list| list.push(Arc::clone(&listener)));
        Subscription {
            listeners: Arc::clone(self),
            listener,
        }
    }
}

/// Ends the subscription when dropped. What happens at that moment may still be told.
#[must_use = "dropping it ends the subscription"]
pub struct Subscription {
    listeners: Arc<Listeners>,
    listener: Arc<dyn Listener>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.listeners.change(|list| {
            if let Some(at) = list.iter().position(|one| Arc::ptr_eq(one, &self.listener)) {
                list.remove(at);
            }
        });
    }
}
