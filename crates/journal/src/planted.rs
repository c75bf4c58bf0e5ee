//! Bugs that the tests plant, to see that their power cuts find them. Feature `planted`, which nothing but the tests turns on:
//! without it there is not a byte of this in the code.

use std::sync::OnceLock;

/// One bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The commit block does not wait until what it commits is flushed.
    CommitBeforeFlush,
    /// What was freed is not revoked.
    NoRevokes,
    /// Mapping and size of a direct write are committed before its data is written.
    SizeBeforeData,
    /// Freed blocks are used again before the transaction that freed them is durable.
    FreedReused,
}

/// The bug of a journal, if it has one.
#[derive(Default)]
pub(crate) struct Bug(OnceLock<Planted>);

impl Bug {
    /// It has one from now on.
    pub(crate) fn plant(&self, bug: Planted) {
        self.0.get_or_init(|| bug);
    }

    pub(crate) fn is(&self, bug: Planted) -> bool {
        self.0.get() == Some(&bug)
    }
}
