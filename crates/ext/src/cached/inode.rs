//! The part of an inode in memory that refers to its cached data.

use std::sync::{Arc, Weak};

use throughline_fileio::{AddressSpace, Backing};
use throughline_locks::Mutex;

/// See the head of this file.
pub(crate) struct Cached {
    /// The cached data.
    pub(crate) space: Arc<AddressSpace>,
    pub(super) file: Mutex<Option<Weak<dyn Backing>>>,
}

impl Cached {
    /// The file as the cache sees it, if it is in use.
    pub(crate) fn file(&self) -> Option<Arc<dyn Backing>> {
        self.file.lock().as_ref().and_then(Weak::upgrade)
    }
}
