//! Bugs that the tests plant to prove that their power cuts find them. They have no effect, and cost nothing,
//! in a build without debug assertions.

use std::sync::OnceLock;

/// One bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The commit block is written before the blocks that it commits are flushed.
    CommitBeforeFlush,
    /// Freed blocks are not revoked.
    NoRevokes,
    /// Mapping and size of a direct write are committed before its data is written.
    SizeBeforeData,
    /// Freed blocks are reused before the transaction that freed them is durable.
    FreedReused,
    /// New attributes and names of a truncated file are committed before the deferred truncation.
    AttributesFirst,
}

/// The bug of a journal, if it has one.
#[derive(Default)]
pub(crate) struct Bug(OnceLock<Planted>);

impl Bug {
    /// Plants `bug`. The first one planted stays.
    pub(crate) fn plant(&self, bug: Planted) {
        if !cfg!(debug_assertions) {
            panic!("bugs can be planted only in a build with debug assertions");
        }
        self.0.get_or_init(|| bug);
    }

    pub(crate) fn is(&self, bug: Planted) -> bool {
        cfg!(debug_assertions) && self.0.get() == Some(&bug)
    }
}
