//! [`WakeFlag`]: set by a thread that must be woken when there may be work, and only then.
//!
//! The waiting thread *first* sets the flag and *then* looks for work; a producer first adds work and then
//! checks the flag. With a full fence between the two steps on both sides, at least one of them sees the
//! other: no wake-up is lost, none is sent to a thread that is awake, and none is sent twice.

use crate::sync::{AtomicBool, Ordering, fence};

/// See the module documentation.
#[derive(Default)]
pub(super) struct WakeFlag(AtomicBool);

impl WakeFlag {
    /// Sets the flag. The caller must look for work afterwards.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Clears the flag.
    pub(super) fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether the flag is set. Call after adding work.
    pub(super) fn is_set(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }

    /// Clears the flag and returns whether it was set: then the caller must wake the thread. Call after
    /// adding work.
    pub(super) fn take(&self) -> bool {
        self.is_set() && self.0.swap(false, Ordering::AcqRel)
    }
}
