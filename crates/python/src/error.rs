//! Errors of the library as `OSError`, so that Python picks the subclass (`FileNotFoundError`) by `errno`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use throughline::archive;
use throughline::internal::{errno_of, errno_of_io, errno_of_making, errno_of_source};
use throughline::{Error, MkfsError};

/// An `OSError`.
fn os_error(errno: i32, text: String, path: &[u8]) -> PyErr {
    if path.is_empty() {
        return PyOSError::new_err((errno, text));
    }
    PyOSError::new_err((errno, text, OsStr::from_bytes(path).to_owned()))
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
        errno_of_io(error),
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
    os_error(errno_of(error), error.to_string(), path)
}

/// As [`of`], of a call with the position in a file.
pub(crate) fn of_io(error: &io::Error) -> PyErr {
    of_system(error, b"")
}

/// An error of making the image at `path`.
pub(crate) fn of_making(error: &MkfsError, path: &[u8]) -> PyErr {
    match error {
        MkfsError::Open { source, path } => of_system(source, path.as_os_str().as_bytes()),
        MkfsError::Source(source) => of_archive(source),
        MkfsError::Device(device) => of(&Error::from(device.clone()), path),
        _ => os_error(errno_of_making(error), error.to_string(), path),
    }
}

/// An error of reading what is packed. Its text has the place.
pub(crate) fn of_archive(error: &archive::Error) -> PyErr {
    match error {
        archive::Error::Io { source, place } => of_system(source, place.as_bytes()),
        _ => os_error(errno_of_source(error), error.to_string(), b""),
    }
}
