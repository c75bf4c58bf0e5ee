//! What can go wrong, and whose fault it is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline_ext::{Abort, Corrupt, Reason};

/// The result of a call.
pub type Result<T> = core::result::Result<T, Error>;

/// An error. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The image or device itself could not be opened: what the system said.
    #[error("{}: {source}", path.display())]
    Open {
        /// What was to be opened.
        path: PathBuf,
        /// Why it could not.
        source: Arc<io::Error>,
    },
    /// The caller asked for something that cannot be.
    #[error(transparent)]
    Caller(#[from] Reason),
    /// The device failed.
    #[error(transparent)]
    Device(throughline_block::Error),
    /// The volume is in order, but this library does not do that with it.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The volume is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// An earlier failure stopped all changes of the volume until it is opened anew; what is there can be read.
    #[error("the volume takes no more changes: {0}")]
    Stopped(Arc<Abort>),
    /// The volume was taken down ([`Volume::take_down`](crate::Volume::take_down)): nothing can be had of it any more.
    #[error("the volume was taken down")]
    Down,
}

impl Error {
    pub(crate) fn open(path: &Path, source: io::Error) -> Error {
        Error::Open {
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }
}

impl From<throughline_ext::Error> for Error {
    fn from(error: throughline_ext::Error) -> Error {
        use throughline_ext::Error as E;
        match error {
            E::Caller(reason) => Error::Caller(reason),
            E::Device(device) => Error::Device(device),
            E::Unsupported(what) => Error::Unsupported(what),
            E::Corrupt(corrupt) => Error::Corrupt(corrupt),
            E::Stopped(why) => Error::Stopped(why),
            E::Down => Error::Down,
            other => Error::Unsupported(other.to_string()),
        }
    }
}

impl From<throughline_fileio::Error> for Error {
    fn from(error: throughline_fileio::Error) -> Error {
        throughline_ext::Error::from(error).into()
    }
}

impl From<throughline_block::Error> for Error {
    fn from(error: throughline_block::Error) -> Error {
        Error::Device(error)
    }
}

/// The kind that `std::fs` would give, and our text.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        use io::ErrorKind as K;
        let kind = match &error {
            Error::Open { source, .. } => source.kind(),
            Error::Caller(reason) => match reason {
                Reason::NotFound => K::NotFound,
                Reason::Exists => K::AlreadyExists,
                Reason::NotDir => K::NotADirectory,
                Reason::IsDir => K::IsADirectory,
                Reason::NotEmpty => K::DirectoryNotEmpty,
                Reason::NoSpace => K::StorageFull,
                Reason::TooLarge => K::FileTooLarge,
                Reason::ReadOnly => K::ReadOnlyFilesystem,
                Reason::Permission | Reason::Denied | Reason::NoKey => K::PermissionDenied,
                Reason::NoAttribute => K::NotFound,
                Reason::ValueTooLong => K::ArgumentListTooLong,
                Reason::TooManyLinks => K::TooManyLinks,
                Reason::Busy(_) | Reason::InUse { .. } => K::ResourceBusy,
                Reason::CrossDevice => K::CrossesDevices,
                Reason::WouldBlock => K::WouldBlock,
                Reason::PastEnd => K::UnexpectedEof,
                _ => K::InvalidInput,
            },
            Error::Device(_) | Error::Down => K::Other,
            Error::Unsupported(_) => K::Unsupported,
            Error::Corrupt(_) => K::InvalidData,
            Error::Stopped(_) => K::ReadOnlyFilesystem,
        };
        io::Error::new(kind, error)
    }
}
