//! [`Condvar`]: that of `parking_lot`, for this crate's [`MutexGuard`].

use std::fmt;
use std::time::{Duration, Instant};

pub use parking_lot::WaitTimeoutResult;

use crate::mutex::MutexGuard;

/// A condition variable. A thread that waits holds no lock that comes after that of the guard, which it takes
/// again when it is woken.
#[derive(Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// One that nobody waits for.
    #[inline]
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Wakes one thread that waits.
    #[inline]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    #[inline]
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits to be woken.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.place.check_last();
        self.0.wait(&mut guard.guard);
    }

    /// Waits to be woken as long as `condition` holds.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) {
        guard.place.check_last();
        self.0.wait_while(&mut guard.guard, condition);
    }

    /// Waits to be woken as long as `condition` holds, for at most this time.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait_while_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        most: Duration,
    ) -> WaitTimeoutResult {
        guard.place.check_last();
        self.0.wait_while_for(&mut guard.guard, condition, most)
    }

    /// Waits to be woken, for at most this time.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        most: Duration,
    ) -> WaitTimeoutResult {
        guard.place.check_last();
        self.0.wait_for(&mut guard.guard, most)
    }

    /// Waits to be woken, until this moment at the latest.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        end: Instant,
    ) -> WaitTimeoutResult {
        guard.place.check_last();
        self.0.wait_until(&mut guard.guard, end)
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
