//! Errors of the journal.

use std::sync::Arc;

use throughline_extfmt::{Corrupt, FsBlock};

/// The result of a journal call.
pub type Result<T> = core::result::Result<T, Error>;

/// An error of the journal. Cheap to clone, because a latched error is returned to every later caller.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller passed an argument that is not allowed.
    #[error("{0}")]
    Caller(&'static str),
    /// The journal was opened for reading only.
    #[error("the volume is open read-only")]
    ReadOnly,
    /// An earlier failure stopped all changes.
    #[error("the volume refuses further changes: {0}")]
    Aborted(Arc<Abort>),
    /// The device failed an operation.
    #[error(transparent)]
    Device(#[from] throughline_block::Error),
    /// The system refused something that is needed, such as a thread.
    #[error("{what}: {source}")]
    System {
        /// What was refused.
        what: &'static str,
        /// The system's error.
        source: Arc<std::io::Error>,
    },
    /// The image needs something that is not supported.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The content read violates the on-disk format.
    #[error("corrupt: {}{what}", block.map(|b| format!("block {b}: ")).unwrap_or_default())]
    Corrupt {
        /// The file system block, if the damage is in a single one.
        block: Option<FsBlock>,
        /// What is wrong.
        what: Corrupt,
    },
}

impl Error {
    /// Whether the device has no room for what was written ([`throughline_block::Error::is_full`]).
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Device(error) if error.is_full())
    }

    /// Corruption found in `block`.
    pub(crate) fn corrupt_block(block: FsBlock, what: Corrupt) -> Self {
        Self::Corrupt {
            block: Some(block),
            what,
        }
    }

    /// Corruption of the journal as a whole.
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt {
            block: None,
            what: Corrupt::new(what),
        }
    }
}

/// Why a journal refuses changes. The first reason is kept for the life of the journal.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Abort {
    /// Metadata could not be written home or flushed. The blocks stay dirty in memory.
    #[error("writing metadata failed: {0}")]
    Write(throughline_block::Error),
    /// An operation ended half-done: its changes must not reach the disk.
    #[error("an operation ended half-done, leaving {blocks} metadata blocks changed in memory")]
    HalfDone {
        /// Blocks that the operation had touched.
        blocks: usize,
    },
    /// The layer above forbids further writes.
    #[error("{0}")]
    Refused(String),
}
