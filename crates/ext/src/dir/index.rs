//! What is known about a directory's index while its inode is in memory ([`super::check`]).

use std::sync::atomic::{AtomicU8, Ordering};

/// What is known of a directory's index.
#[derive(Default)]
pub(crate) struct Index(AtomicU8);

const SOUND: u8 = 1;
const DAMAGED: u8 = 2;

impl Index {
    /// Nobody has looked at all of it.
    pub(super) fn is_unknown(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// Names are found without it.
    pub(super) fn is_damaged(&self) -> bool {
        self.0.load(Ordering::Acquire) == DAMAGED
    }

    pub(super) fn set_sound(&self) {
        // What was found once stays.
        let _ = self
            .0
            .compare_exchange(0, SOUND, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(super) fn set_damaged(&self) {
        self.0.store(DAMAGED, Ordering::Release);
    }
}
