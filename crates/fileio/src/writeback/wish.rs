//! [`Wish`]: one thread wants to be told when there may be something for it, and only then.
//!
//! The one that wishes says so *first* and looks for itself *then*; whoever makes something makes it first and looks at the
//! wish then. With a full fence between the two steps on both sides one of them sees the other: no wake-up is lost, none is
//! sent to who is awake, and none twice.

use crate::sync::{AtomicBool, Ordering, fence};

/// See the module.
#[derive(Default)]
pub(super) struct Wish(AtomicBool);

impl Wish {
    /// It is wished from now on. To be followed by a look.
    pub(super) fn make(&self) {
        self.0.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// It is no longer wished.
    pub(super) fn drop_it(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether it is wished; after something was made.
    pub(super) fn is_made(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }

    /// After something was made: whether the one that wishes must be told, by this caller.
    pub(super) fn grant(&self) -> bool {
        self.is_made() && self.0.swap(false, Ordering::AcqRel)
    }
}
