//! Errors of the library as `OSError`, so that Python picks the subclass (`FileNotFoundError`) by `errno`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use throughline::archive;
use throughline::{Error, MkfsError};

const EIO: i32 = 5;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EOPNOTSUPP: i32 = 95;
const ETIMEDOUT: i32 = 110;
const ESTALE: i32 = 116;
/// The kernel's number for a damaged file system.
const EUCLEAN: i32 = 117;

/// An `OSError`.
fn os_error(errno: i32, text: String, path: &[u8]) -> PyErr {
    if path.is_empty() {
        return PyOSError::new_err((errno, text));
    }
    PyOSError::new_err((errno, text, OsStr::from_bytes(path).to_owned()))
}

/// The number for an error of the system that has none.
fn errno_of(kind: io::ErrorKind) -> i32 {
    use io::ErrorKind as K;
    match kind {
        K::NotFound => ENOENT,
        K::PermissionDenied => EACCES,
        K::AlreadyExists => EEXIST,
        K::ResourceBusy => EBUSY,
        K::WouldBlock => EAGAIN,
        K::InvalidInput | K::UnexpectedEof => EINVAL,
        K::InvalidData => EUCLEAN,
        K::FileTooLarge => EFBIG,
        K::StorageFull => ENOSPC,
        K::ReadOnlyFilesystem => EROFS,
        K::Unsupported => EOPNOTSUPP,
        K::TimedOut => ETIMEDOUT,
        _ => EIO,
    }
}

/// The system's own text for a number, as Python's own errors have it.
fn system_text(py: Python<'_>, errno: i32) -> PyResult<String> {
    py.import("os")?
        .call_method1("strerror", (errno,))?
        .extract()
}

fn of_system(error: &io::Error, path: &[u8]) -> PyErr {
    if let Some(ours) = ours_in(error) {
        return of(ours, path);
    }
    let errno = error.raw_os_error();
    let text = match errno {
        Some(errno) => Python::attach(|py| system_text(py, errno)).ok(),
        None => None,
    };
    os_error(
        errno.unwrap_or_else(|| errno_of(error.kind())),
        text.unwrap_or_else(|| error.to_string()),
        path,
    )
}

fn ours_in(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// An error of a call on `path`, or without one.
pub(crate) fn of(error: &Error, path: &[u8]) -> PyErr {
    if let Error::Open { source, .. } = error {
        return of_system(source, path);
    }
    let as_system = io::Error::from(error.clone());
    // It has a number only if that says everything.
    if as_system.raw_os_error().is_some() {
        return of_system(&as_system, path);
    }
    let errno = error.raw_os_error();
    let errno = errno.unwrap_or_else(|| errno_of(error.kind()));
    os_error(errno, error.to_string(), path)
}

/// As [`of`], of a call with the position in a file.
pub(crate) fn of_io(error: &io::Error) -> PyErr {
    of_system(error, b"")
}

/// An error of making the image at `path`.
pub(crate) fn of_making(error: &MkfsError, path: &[u8]) -> PyErr {
    let errno = match error {
        MkfsError::Open { source, path } => {
            return of_system(source, path.as_os_str().as_bytes());
        }
        MkfsError::Source(source) => return of_archive(source),
        MkfsError::Device(device) => return of(&Error::from(device.clone()), path),
        MkfsError::Occupied(_) => EEXIST,
        MkfsError::Unsupported(_) => EOPNOTSUPP,
        MkfsError::Damaged(_) => EUCLEAN,
        _ => EINVAL,
    };
    os_error(errno, error.to_string(), path)
}

/// An error of reading what is packed. Its text has the place.
pub(crate) fn of_archive(error: &archive::Error) -> PyErr {
    let errno = match error {
        archive::Error::Io { source, place } => {
            let path = place.as_bytes();
            return of_system(source, path);
        }
        archive::Error::Unsupported(_) => EOPNOTSUPP,
        archive::Error::Damaged { .. } => EUCLEAN,
        archive::Error::Limit { .. } => EFBIG,
        archive::Error::Changed(_) => ESTALE,
        _ => EINVAL,
    };
    os_error(errno, error.to_string(), b"")
}
