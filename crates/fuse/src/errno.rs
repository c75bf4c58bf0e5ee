//! Errors as the kernel tells them to programs: by the number that [`Error::raw_os_error`] has, which is what a local ext4 gives
//! for the same.
//!
//! What is not the caller's fault is also said in the log, by whoever answers the request ([`is_callers`] tells).

use rustix::io::Errno;
use throughline::Error;

/// The errno for an error.
pub(crate) fn of(error: &Error) -> Errno {
    match error {
        // Whatever the device said: ENOSPC of the host, for one, is no answer to a read.
        Error::Device(_) => Errno::IO,
        Error::Caller(_) => number(error).unwrap_or(Errno::INVAL),
        _ => number(error).unwrap_or(Errno::IO),
    }
}

fn number(error: &Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

/// Whether it is about what the caller asked for, so that nobody else has to hear of it.
pub(crate) fn is_callers(error: &Error) -> bool {
    matches!(error, Error::Caller(_) | Error::Unsupported(_))
}
