//! State of a directory's index while its inode is in memory ([`super::check`]).

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether a directory's index was checked, and the result.
#[derive(Default)]
pub(crate) struct Index(AtomicU8);

const SOUND: u8 = 1;
const DAMAGED: u8 = 2;

impl Index {
    /// The whole index has not been checked.
    pub(super) fn is_unknown(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// The index is not used: names are found without it.
    pub(super) fn is_damaged(&self) -> bool {
        self.0.load(Ordering::Acquire) == DAMAGED
    }

    pub(super) fn set_sound(&self) {
        // Damage found earlier stays recorded.
        let _ = self
            .0
            .compare_exchange(0, SOUND, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(super) fn set_damaged(&self) {
        self.0.store(DAMAGED, Ordering::Release);
    }
}
