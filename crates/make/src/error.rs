//! Errors of making a volume.

use std::io;
use std::path::PathBuf;

use throughline_extfmt::Corrupt;

/// Result of making a volume.
pub type Result<T> = std::result::Result<T, Error>;

/// Why no volume was made.
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
    /// The target could not be opened.
    #[error("{}: {source}", path.display())]
    Open {
        /// The target.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file that is packed could not be read, or is shorter than it was.
    #[error("{path}: {}", shown(source))]
    Source {
        /// The file, by its path in the image.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// A source that is read in its own order failed, or ended early.
    #[error("{0}")]
    Stream(io::Error),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] throughline_block::Error),
}

impl Error {
    pub(crate) fn invalid(text: impl Into<String>) -> Error {
        Error::Invalid(text.into())
    }

    pub(crate) fn unsupported(text: impl Into<String>) -> Error {
        Error::Unsupported(text.into())
    }
}

/// A file that ends early has changed.
fn shown(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => {
            "became shorter while it was read; run again when it no longer changes".to_owned()
        }
        _ => source.to_string(),
    }
}

/// Numbers that the format refuses: the caller chose them.
impl From<Corrupt> for Error {
    fn from(refused: Corrupt) -> Error {
        Error::Invalid(refused.to_string())
    }
}
