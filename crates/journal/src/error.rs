//! What can go wrong with metadata buffers, and whose fault it is.

use std::sync::Arc;

use throughline_extfmt::{Corrupt, FsBlock};

/// The result of a journal call.
pub type Result<T> = core::result::Result<T, Error>;

/// An error of the journal. Cheap to clone: a latched one answers every later caller.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that cannot be.
    #[error("{0}")]
    Caller(&'static str),
    /// The journal was opened for reading only.
    #[error("the volume is open read-only")]
    ReadOnly,
    /// An earlier failure stopped all changes; the text says which.
    #[error("the volume takes no more changes: {0}")]
    Aborted(Arc<Abort>),
    /// The device failed an operation.
    #[error(transparent)]
    Device(#[from] throughline_block::Error),
    /// The image needs something that is not there yet.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// What was read is not what the format allows.
    #[error("corrupt: {}{what}", block.map(|b| format!("block {b}: ")).unwrap_or_default())]
    Corrupt {
        /// Where, if it is in one block of the file system.
        block: Option<FsBlock>,
        /// What is wrong.
        what: Corrupt,
    },
}

impl Error {
    /// A corruption found in `block`.
    pub(crate) fn corrupt_block(block: FsBlock, what: Corrupt) -> Self {
        Self::Corrupt {
            block: Some(block),
            what,
        }
    }

    /// A corruption of the journal as a whole.
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt {
            block: None,
            what: Corrupt::new(what),
        }
    }
}

/// Why a journal takes no more changes. The first reason stays for the life of the journal.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Abort {
    /// Metadata could not be written home or flushed. The blocks stay dirty in memory.
    #[error("writing metadata failed: {0}")]
    Write(throughline_block::Error),
    /// An operation ended half-way: what it had changed so far must not reach the disk.
    #[error("an operation ended half-way, leaving {blocks} metadata blocks changed in memory")]
    HalfDone {
        /// Blocks that the operation had touched.
        blocks: usize,
    },
    /// The layer above found that nothing more may be written.
    #[error("{0}")]
    Refused(String),
}
