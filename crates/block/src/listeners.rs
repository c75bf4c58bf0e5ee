//! Lists of listeners. A listener gets events until its subscription is dropped.
//!
//! With no listeners, a check costs one relaxed load.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use throughline_locks::RwLock;

use crate::events::Listener;

/// A list of listeners of type `L`, by default listeners to a disk.
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
    /// Whether there are any listeners. Costs one relaxed load.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// The current listeners. `None`, the common case, costs one relaxed load.
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

    /// Adds a listener permanently.
    pub fn add(&self, listener: Arc<L>) {
        self.change(|list| list.push(listener));
    }

    /// Adds a listener until the returned subscription is dropped.
    pub fn subscribe(self: &Arc<Self>, listener: Arc<L>) -> Subscription<L> {
        self.add(Arc::clone(&listener));
        Subscription {
            listeners: Arc::clone(self),
            listener,
        }
    }
}

/// Ends the subscription when dropped. Operations in progress may still report events to the listener.
#[must_use = "dropping it ends the subscription"]
pub struct Subscription<L: ?Sized = dyn Listener> {
    listeners: Arc<Listeners<L>>,
    listener: Arc<L>,
}

impl<L: ?Sized> fmt::Debug for Subscription<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
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
