//! What can go wrong, and whose fault it is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
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

impl Error {
    /// The number that the kernel's ext4 gives for the same (`errno`), or that the device gave; `None` where there is none.
    pub fn raw_os_error(&self) -> Option<i32> {
        let errno = match self {
            Error::Caller(reason) => errno_of(reason)?,
            Error::Open { source, .. } => return source.raw_os_error(),
            Error::Device(_) => return Some(self.io_error()?.raw_os_error().unwrap_or(EIO)),
            Error::Unsupported(_) => Errno::OPNOTSUPP,
            // As the kernel's EFSCORRUPTED.
            Error::Corrupt(_) => Errno::UCLEAN,
            Error::Stopped(_) => Errno::ROFS,
            Error::Down => Errno::IO,
        };
        Some(errno.raw_os_error())
    }

    /// What the device, or the system below it, said: the error's source.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Error::Open { source, .. } => Some(source),
            Error::Device(throughline_block::Error::Device { source, .. }) => Some(source),
            _ => None,
        }
    }

    /// The kind that `std::fs` would give.
    pub fn kind(&self) -> io::ErrorKind {
        use io::ErrorKind as K;
        match self {
            Error::Caller(reason) => match reason {
                Reason::Busy(_) | Reason::InUse { .. } => K::ResourceBusy,
                Reason::PastEnd => K::UnexpectedEof,
                Reason::NoAttribute => K::NotFound,
                Reason::NoKey => K::PermissionDenied,
                Reason::AttributeName => K::InvalidInput,
                _ => errno_of(reason).map_or(K::InvalidInput, |errno| errno.kind()),
            },
            Error::Open { .. } | Error::Device(_) => {
                self.io_error().map_or(K::Other, io::Error::kind)
            }
            Error::Down => K::Other,
            Error::Unsupported(_) => K::Unsupported,
            Error::Corrupt(_) => K::InvalidData,
            Error::Stopped(_) => K::ReadOnlyFilesystem,
        }
    }
}

const EIO: i32 = Errno::IO.raw_os_error();

/// What the kernel's ext4 says; `None` for what only this library has.
fn errno_of(reason: &Reason) -> Option<Errno> {
    Some(match reason {
        Reason::NotFound => Errno::NOENT,
        Reason::Exists => Errno::EXIST,
        Reason::NotDir => Errno::NOTDIR,
        Reason::IsDir => Errno::ISDIR,
        Reason::NotEmpty => Errno::NOTEMPTY,
        Reason::NoSpace => Errno::NOSPC,
        Reason::TooLarge => Errno::FBIG,
        Reason::NameTooLong => Errno::NAMETOOLONG,
        Reason::ReadOnly => Errno::ROFS,
        Reason::Permission => Errno::PERM,
        Reason::Invalid(_) => Errno::INVAL,
        Reason::TooManyLinks => Errno::MLINK,
        Reason::Loop => Errno::LOOP,
        Reason::NoKey => Errno::NOKEY,
        Reason::Busy(_) | Reason::InUse { .. } => Errno::BUSY,
        Reason::CrossDevice => Errno::XDEV,
        Reason::NoAttribute => Errno::NODATA,
        Reason::AttributeName => Errno::RANGE,
        Reason::ValueTooLong => Errno::TOOBIG,
        Reason::Denied => Errno::ACCESS,
        Reason::WouldBlock => Errno::AGAIN,
        _ => return None,
    })
}

/// As `std::fs` has them: a reason that the number says all of becomes an error with [`io::Error::raw_os_error`]. What says more
/// (damage, a device's error with its source, who is in the way) keeps its text, and is inside ([`io::Error::get_ref`]);
/// [`Error::raw_os_error`] has the number.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let says_more = match &error {
            Error::Caller(reason) => matches!(
                reason,
                Reason::Invalid(_) | Reason::Busy(_) | Reason::InUse { .. } | Reason::AttributeName
            ),
            _ => true,
        };
        match error.raw_os_error() {
            Some(number) if !says_more => io::Error::from_raw_os_error(number),
            _ => io::Error::new(error.kind(), error),
        }
    }
}
