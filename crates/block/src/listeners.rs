//! Those who listen to something: told of events, until their subscription is dropped.
//!
//! Where nobody listens, asking costs one relaxed load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

use crate::events::Listener;

/// Listeners of one kind; those of a disk, where nothing else is said.
pub struct Listeners<L: ?Sized = dyn Listener> {
    count: AtomicUsize,
    list: RwLock<Arc<Vec<Arc<L>>>>,
}

impl<L: ?Sized> Default for Listeners<L> {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            list: RwLock::new(Arc::new(Vec::new())),
        }
    }
}

impl<L: ?Sized> Listeners<L> {
    /// Whether there are any; one relaxed load.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Those who listen now; `None`, the common case, costs one relaxed load.
    pub fn now(&self) -> Option<Arc<Vec<Arc<L>>>> {
        if !self.any() {
            return None;
        }
        Some(Arc::clone(&self.list.read()))
    }

    fn change(&self, f: impl FnOnce(&mut Vec<Arc<L>>)) {
        let mut list = self.list.write();
        let mut changed = Vec::clone(&list);
        f(&mut changed);
        self.count.store(changed.len(), Ordering::Relaxed);
        *list = Arc::new(changed);
    }

    /// Adds one, for good.
    pub fn add(&self, listener: Arc<L>) {
        self.change(|list| list.push(listener));
    }

    /// Adds one, until the answer is dropped.
    pub fn subscribe(self: &Arc<Self>, listener: Arc<L>) -> Subscription<L> {
        self.add(Arc::clone(&listener));
        Subscription {
            listeners: Arc::clone(self),
            listener,
        }
    }
}

/// Ends the subscription when dropped. What goes on at that moment may still be told.
#[must_use = "dropping it ends the subscription"]
pub struct Subscription<L: ?Sized = dyn Listener> {
    listeners: Arc<Listeners<L>>,
    listener: Arc<L>,
}

impl<L: ?Sized> Drop for Subscription<L> {
    fn drop(&mut self) {
        self.listeners.change(|list| {
            if let Some(at) = list.iter().position(|one| Arc::ptr_eq(one, &self.listener)) {
                list.remove(at);
            }
        });
    }
}
