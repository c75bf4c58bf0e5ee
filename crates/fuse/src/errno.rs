//! Maps errors to errno, the same as the kernel's ext4 returns. The only place that does.
//!
//! Errors that are not the caller's fault ([`is_callers`]) are also logged, where the request is answered.

use rustix::io::Errno;
use throughline::{Error, Reason};

/// The errno for an error.
pub(crate) fn of(error: &Error) -> Errno {
    match error {
        Error::Caller(reason) => of_reason(reason),
        Error::Open { source, .. } => source
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error),
        Error::Unsupported(_) => Errno::OPNOTSUPP,
        // As the kernel's EFSCORRUPTED.
        Error::Corrupt(_) => Errno::UCLEAN,
        Error::Stopped(_) => Errno::ROFS,
        _ => Errno::IO,
    }
}

fn of_reason(reason: &Reason) -> Errno {
    match reason {
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
        Reason::TooManyLinks => Errno::MLINK,
        Reason::Loop => Errno::LOOP,
        Reason::Busy(_) | Reason::InUse { .. } => Errno::BUSY,
        Reason::CrossDevice => Errno::XDEV,
        Reason::NoAttribute => Errno::NODATA,
        Reason::AttributeName => Errno::RANGE,
        Reason::ValueTooLong => Errno::TOOBIG,
        Reason::Denied => Errno::ACCESS,
        Reason::WouldBlock => Errno::AGAIN,
        Reason::NoKey => Errno::NOKEY,
        _ => Errno::INVAL,
    }
}

/// Whether the request itself is at fault, so that the error need not be logged.
pub(crate) fn is_callers(error: &Error) -> bool {
    matches!(error, Error::Caller(_) | Error::Unsupported(_))
}
