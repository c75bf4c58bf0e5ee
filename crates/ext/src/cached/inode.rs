//! The part of an inode in memory that refers to its cached data.

use std::sync::{Arc, Weak};

use throughline_fileio::{AddressSpace, Backing};
use throughline_locks::Mutex;

use crate::caller::Caller;

/// See the head of this file.
pub(crate) struct Cached {
    /// The cached data.
    pub(crate) space: Arc<AddressSpace>,
    pub(super) file: Mutex<Option<Weak<dyn Backing>>>,
    /// Who stored the bytes that are kept without space: their space is asked for later.
    pub(super) stored_for: Mutex<Option<Caller>>,
}

impl Cached {
    /// The file as the cache sees it, if it is in use.
    pub(crate) fn file(&self) -> Option<Arc<dyn Backing>> {
        self.file.lock().as_ref().and_then(Weak::upgrade)
    }

    /// Bytes are stored for this caller, whose process may end. If bytes of several callers have no space,
    /// they count as those of one without privileges, if there is one.
    pub(crate) fn note_stored_for(&self, caller: Caller, is_privileged: impl Fn(Caller) -> bool) {
        let mut known = self.stored_for.lock();
        let waits = self.space.refused.is_any();
        if known.is_none_or(|known| !waits || is_privileged(known)) {
            *known = Some(caller);
        }
    }
}
