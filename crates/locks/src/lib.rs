//! The locks of the workspace, and the one order in which a thread takes them.
//!
//! Each lock has a [`Rank`], and a number among the locks of its rank. In a build with debug assertions,
//! taking a lock panics unless it comes after all those that the thread holds: so before a held lock is taken
//! again, shared or not, and before an inversion, whether or not another thread is there to make a
//! deadlock of it. A lock that is only tried (`try_lock`) is exempt, since nobody waits for it; those taken
//! under it are not. In any other build the types are those of `parking_lot`, with the same size.
//!
//! A lock made with `new` or `default` is a [`Rank::Leaf`]: no other is taken under it.

#![forbid(unsafe_code)]

mod condvar;
mod mutex;
mod place;
mod rank;
mod rwlock;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use place::{Place, apart};
pub use rank::Rank;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks outside of the order: mostly parts of one that is in it as a whole, by a [`Place`]. A test lists who
/// uses them.
pub mod parts {
    pub use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
}

#[cfg(not(debug_assertions))]
const _: () = {
    assert!(size_of::<Mutex<u64>>() == size_of::<parking_lot::Mutex<u64>>());
    assert!(size_of::<MutexGuard<'_, u64>>() == size_of::<parking_lot::MutexGuard<'_, u64>>());
    assert!(size_of::<RwLock<u64>>() == size_of::<parking_lot::RwLock<u64>>());
    assert!(
        size_of::<RwLockReadGuard<'_, u64>>() == size_of::<parking_lot::RwLockReadGuard<'_, u64>>()
    );
    assert!(
        size_of::<RwLockWriteGuard<'_, u64>>()
            == size_of::<parking_lot::RwLockWriteGuard<'_, u64>>()
    );
    assert!(size_of::<Place>() == 0);
};

#[cfg(test)]
mod tests;
