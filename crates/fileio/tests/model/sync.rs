//! The counterpart of `src/sync.rs`: `shuttle`'s types with the interface of `parking_lot`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

// The sharded lock has the same semantics as this one and is only faster.
pub(crate) use shuttle::sync::{
    RwLock as ShardedLock, RwLockReadGuard as ShardedLockReadGuard,
    RwLockWriteGuard as ShardedLockWriteGuard,
};

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

pub(crate) use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};
pub(crate) use throughline_locks::Rank;

/// The order is not checked here: the threads of a schedule share one of the system.
pub(crate) struct Place;

impl Place {
    pub(crate) fn enter(_rank: Rank, _number: u64) -> Self {
        Self
    }
}

pub(crate) fn this_thread() -> usize {
    let mut hasher = DefaultHasher::new();
    shuttle::thread::current().id().hash(&mut hasher);
    hasher.finish() as usize
}

#[derive(Default)]
pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().expect("no thread panics")
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().expect("no thread panics")
    }
}

pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// The inner guard is taken only while a condition variable has it.
pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn ranked(_rank: Rank, value: T) -> Self {
        Self::new(value)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect("no thread panics")))
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("held")
    }
}

pub(crate) struct Condvar(shuttle::sync::Condvar);

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("held");
        guard.0 = Some(self.0.wait(held).expect("no thread panics"));
    }

    /// Never times out, so that a lost wake-up shows as a deadlock instead of a delay.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _most: Duration) {
        self.wait(guard);
    }
}
