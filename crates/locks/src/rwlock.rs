//! [`RwLock`]: that of `parking_lot`, with its place in the order.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::place::{Place, Spot};
use crate::rank::Rank;

/// A lock that is held shared or exclusively. A thread that holds it shared must not take it again: one that
/// waits to take it exclusively, between the two, would stop both. See the crate's documentation.
pub struct RwLock<T: ?Sized> {
    spot: Spot,
    lock: parking_lot::RwLock<T>,
}

/// A [`RwLock`] that is held shared.
#[must_use = "the lock is released when this is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    guard: parking_lot::RwLockReadGuard<'a, T>,
    _place: Place,
}

/// A [`RwLock`] that is held exclusively.
#[must_use = "the lock is released when this is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    guard: parking_lot::RwLockWriteGuard<'a, T>,
    _place: Place,
}

impl<T> RwLock<T> {
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
            lock: parking_lot::RwLock::new(value),
        }
    }

    /// The value.
    #[inline]
    pub fn into_inner(self) -> T {
        self.lock.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes it shared.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let place = self.spot.enter();
        RwLockReadGuard {
            guard: self.lock.read(),
            _place: place,
        }
    }

    /// Takes it exclusively.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let place = self.spot.enter();
        RwLockWriteGuard {
            guard: self.lock.write(),
            _place: place,
        }
    }

    /// Takes it shared if that needs no waiting.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let guard = self.lock.try_read()?;
        Some(RwLockReadGuard {
            guard,
            _place: self.spot.enter_tried(),
        })
    }

    /// Takes it exclusively if that needs no waiting.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let guard = self.lock.try_write()?;
        Some(RwLockWriteGuard {
            guard,
            _place: self.spot.enter_tried(),
        })
    }

    /// The value, which nobody else can reach.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }
}

impl<T: Default> Default for RwLock<T> {
    #[inline]
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
