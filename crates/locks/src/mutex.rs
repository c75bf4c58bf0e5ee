//! [`Mutex`]: that of `parking_lot`, with its place in the order.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::place::{Place, Spot};
use crate::rank::Rank;

/// A mutex. See the crate's documentation.
pub struct Mutex<T: ?Sized> {
    spot: Spot,
    lock: parking_lot::Mutex<T>,
}

/// A locked [`Mutex`].
#[must_use = "the lock is released when this is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    pub(crate) guard: parking_lot::MutexGuard<'a, T>,
    pub(crate) place: Place,
}

impl<T> Mutex<T> {
    /// One under which no other lock is taken.
    #[inline]
    pub const fn new(value: T) -> Self {
        Self::ranked(Rank::Leaf, value)
    }

    /// One of a rank of which a thread holds one at a time.
    #[inline]
    pub const fn ranked(rank: Rank, value: T) -> Self {
        Self::numbered(rank, 0, value)
    }

    /// One of a rank of which a thread may hold several, taken in ascending order of their numbers.
    #[inline]
    pub const fn numbered(rank: Rank, number: u64, value: T) -> Self {
        Self {
            spot: Spot::new(rank, number),
            lock: parking_lot::Mutex::new(value),
        }
    }

    /// The value.
    #[inline]
    pub fn into_inner(self) -> T {
        self.lock.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let place = self.spot.enter();
        MutexGuard {
            guard: self.lock.lock(),
            place,
        }
    }

    /// Locks it if that needs no waiting.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.lock.try_lock()?;
        Some(MutexGuard {
            guard,
            place: self.spot.enter_tried(),
        })
    }

    /// The value, which nobody else can reach.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }
}

impl<T: Default> Default for Mutex<T> {
    #[inline]
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
