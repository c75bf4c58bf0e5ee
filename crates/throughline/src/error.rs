//! [`Error`]: what failed, and whether the caller, the device or the volume is at fault.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use throughline_block::Error as DeviceError;
use throughline_ext::{Abort, Corrupt, Reason};

/// The result of a call.
pub type Result<T> = core::result::Result<T, Error>;

/// An error. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The image or device itself could not be opened.
    #[error("{}: {source}", path.display())]
    Open {
        /// The path that was to be opened.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The request is invalid, or cannot be carried out in the present state of the volume.
    #[error(transparent)]
    Caller(#[from] Reason),
    /// The device failed.
    #[error(transparent)]
    Device(DeviceError),
    /// The system refused something that is needed, such as a thread.
    #[error("{what}: {source}")]
    System {
        /// What was refused.
        what: &'static str,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The volume is in order, but this library does not support the request on it.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The volume is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// An earlier failure stopped all changes until the volume is opened again. It can still be read.
    #[error("the volume refuses further changes: {0}")]
    Stopped(Arc<Abort>),
    /// The volume was taken down ([`Volume::take_down`](crate::Volume::take_down)): every call fails.
    #[error("the volume was taken down")]
    Down,
}

impl Error {
    pub(crate) fn open(path: &Path, source: io::Error) -> Error {
        // The name of an object may hold credentials.
        let shown = crate::open::object::object_shown(path);
        Error::Open {
            path: shown.map_or_else(|| path.to_owned(), PathBuf::from),
            source: Arc::new(source),
        }
    }
}

#[doc(hidden)]
impl From<throughline_ext::Error> for Error {
    fn from(error: throughline_ext::Error) -> Error {
        use throughline_ext::Error as E;
        match error {
            E::Caller(reason) => Error::Caller(reason),
            E::Device(device) => Error::Device(device),
            E::System { what, source } => Error::System { what, source },
            E::Unsupported(what) => Error::Unsupported(what),
            E::Corrupt(corrupt) => Error::Corrupt(corrupt),
            E::Stopped(why) => Error::Stopped(why),
            E::Down => Error::Down,
            other => Error::Unsupported(other.to_string()),
        }
    }
}

#[doc(hidden)]
impl From<throughline_fileio::Error> for Error {
    fn from(error: throughline_fileio::Error) -> Error {
        throughline_ext::Error::from(error).into()
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        match error {
            DeviceError::System { what, source } => Error::System { what, source },
            other => Error::Device(other),
        }
    }
}

impl Error {
    /// Whether the file system that holds the image is full, or a limit there is reached. Nothing was lost:
    /// the call can be repeated once there is room. [`Reason::NoSpace`] is for a volume that is full itself.
    pub fn is_host_full(&self) -> bool {
        matches!(self, Error::Device(error) if error.is_full())
    }

    /// The `errno` that the kernel's ext4 returns for this error, or the device's; `None` if there is none.
    pub fn raw_os_error(&self) -> Option<i32> {
        let errno = match self {
            Error::Caller(reason) => errno_of(reason)?,
            Error::Open { source, .. } | Error::System { source, .. } => {
                return source.raw_os_error();
            }
            Error::Device(_) => return Some(self.io_error()?.raw_os_error().unwrap_or(EIO)),
            Error::Unsupported(_) => Errno::OPNOTSUPP,
            // The kernel's EFSCORRUPTED.
            Error::Corrupt(_) => Errno::UCLEAN,
            Error::Stopped(_) => Errno::ROFS,
            Error::Down => Errno::IO,
        };
        Some(errno.raw_os_error())
    }

    /// The underlying error of the device or the system.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Error::Open { source, .. } | Error::System { source, .. } => Some(source),
            Error::Device(DeviceError::Device { source, .. }) => Some(source),
            _ => None,
        }
    }

    /// The kind that `std::fs` would return.
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
            Error::Open { .. } | Error::Device(_) | Error::System { .. } => {
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

/// The kernel's ext4 errno; `None` for errors that only this library has.
fn errno_of(reason: &Reason) -> Option<Errno> {
    Some(match reason {
        Reason::NotFound => Errno::NOENT,
        Reason::Exists => Errno::EXIST,
        Reason::NotDir => Errno::NOTDIR,
        Reason::IsDir => Errno::ISDIR,
        Reason::NotEmpty => Errno::NOTEMPTY,
        Reason::NoSpace => Errno::NOSPC,
        Reason::Quota => Errno::DQUOT,
        Reason::TooLarge => Errno::FBIG,
        Reason::NameTooLong => Errno::NAMETOOLONG,
        Reason::ReadOnly => Errno::ROFS,
        Reason::Permission => Errno::PERM,
        // As mount(2).
        Reason::Invalid(_) | Reason::NotExt(_) => Errno::INVAL,
        Reason::TooManyLinks => Errno::MLINK,
        Reason::Loop => Errno::LOOP,
        Reason::NoKey => Errno::NOKEY,
        Reason::Busy(_) | Reason::InUse { .. } => Errno::BUSY,
        Reason::CrossDevice => Errno::XDEV,
        Reason::NoAttribute => Errno::NODATA,
        Reason::AttributeName => Errno::RANGE,
        Reason::ValueTooLong => Errno::TOOBIG,
        Reason::Denied => Errno::ACCESS,
        Reason::NotOpenedFor(_) => Errno::BADF,
        _ => return None,
    })
}

/// As in `std::fs`: if the errno says everything, the result is an OS error with [`io::Error::raw_os_error`].
/// Errors with more detail (damage, a device error with its source, the holder of a lock) keep their text and
/// are wrapped ([`io::Error::get_ref`]); [`Error::raw_os_error`] then has the number.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let says_more = match &error {
            Error::Caller(reason) => matches!(
                reason,
                Reason::Invalid(_)
                    | Reason::NotExt(_)
                    | Reason::Busy(_)
                    | Reason::InUse { .. }
                    | Reason::AttributeName
            ),
            _ => true,
        };
        match error.raw_os_error() {
            Some(number) if !says_more => io::Error::from_raw_os_error(number),
            _ => io::Error::new(error.kind(), error),
        }
    }
}
