//! The locks and atomics of the concurrent structures that a model checker looks at.
//!
//! A structure takes them from `crate::sync` and from nowhere else, and uses no other module of the crate. So a test target
//! can include its source file (`#[path]`) next to a `sync` module of its own made of `shuttle`'s types, and run the very
//! same code under every schedule: see `tests/model/main.rs`, run by `cargo test -p throughline-fileio --test model`.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

pub(crate) use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
pub(crate) use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

thread_local! {
    static HERE: u8 = const { 0 };
}

/// A number that no other thread has while this one lives.
pub(crate) fn this_thread() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
