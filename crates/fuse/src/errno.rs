//! Maps errors to errno: the number of [`Error::raw_os_error`], the same as the kernel's ext4 returns.
//!
//! Errors that are not the caller's fault ([`is_callers`]) are also logged, where the request is answered.

use rustix::io::Errno;
use throughline::Error;

/// The errno for an error.
pub(crate) fn of(error: &Error) -> Errno {
    match error {
        // Also for a quota of the host, which is not that of a user of the mount.
        error if error.is_host_full() => Errno::NOSPC,
        // Never another errno of the device's own, which would be misleading.
        Error::Device(_) => Errno::IO,
        Error::Caller(_) => number(error).unwrap_or(Errno::INVAL),
        _ => number(error).unwrap_or(Errno::IO),
    }
}

fn number(error: &Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

/// Whether the request itself is at fault, so that the error need not be logged.
pub(crate) fn is_callers(error: &Error) -> bool {
    matches!(error, Error::Caller(_) | Error::Unsupported(_))
}
