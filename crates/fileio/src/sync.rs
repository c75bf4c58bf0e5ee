//! Locks and atomics for the concurrent structures that are model-checked.
//!
//! Such a structure imports them only from `crate::sync` and uses no other module of the crate. So a test
//! target can include its source file (`#[path]`) next to its own `sync` module, built on `shuttle`'s types,
//! and run the same code under every schedule: see `tests/model/main.rs`, run by `cargo test -p
//! throughline-fileio --test model`.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

pub(crate) use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
pub(crate) use throughline_locks::parts::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub(crate) use throughline_locks::{Condvar, Mutex, Place, Rank};

thread_local! {
    static HERE: u8 = const { 0 };
}

/// A number unique among live threads.
pub(crate) fn this_thread() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
