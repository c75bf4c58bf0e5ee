//! Errors of making a volume.

use std::io;
use std::path::{Path, PathBuf};

use throughline_extfmt::Corrupt;

/// Result of making a volume.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a volume was not made, or its size was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that the format does not allow; the text says what it allows.
    #[error("{0}")]
    Invalid(String),
    /// The caller asked for something that this version does not make, by its name.
    #[error("{0}")]
    Unsupported(String),
    /// The target holds something that would be lost.
    #[error("{0}")]
    Occupied(String),
    /// The volume contradicts itself: `e2fsck` has to look at it.
    #[error("{0}")]
    Damaged(String),
    /// The target could not be opened.
    #[error("{}: {source}", path.display())]
    Open {
        /// The target.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The system refused something that is needed, such as a thread.
    #[error("{what}: {source}")]
    System {
        /// What was refused.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// A source of what is packed could not be read, or changed while it was read.
    #[error(transparent)]
    Source(#[from] throughline_archive::Error),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] throughline_block::Error),
}

impl Error {
    pub(crate) fn invalid(text: impl Into<String>) -> Error {
        Error::Invalid(text.into())
    }

    /// The target at `path`, or a file beside it, could not be opened.
    pub(crate) fn open(path: &Path) -> impl Fn(io::Error) -> Error + Copy {
        move |source| Error::Open {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn unsupported(text: impl Into<String>) -> Error {
        Error::Unsupported(text.into())
    }
}

/// Numbers that the format refuses: the caller chose them.
impl From<Corrupt> for Error {
    fn from(refused: Corrupt) -> Error {
        Error::Invalid(refused.to_string())
    }
}
