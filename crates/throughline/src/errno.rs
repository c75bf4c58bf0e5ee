//! A number of `errno` for every error, for callers that have nothing else: the bindings of other languages.

use std::io;

use rustix::io::Errno;
use throughline_archive as archive;
use throughline_make::Error as MkfsError;

use crate::error::Error;

/// The number of an error: [`Error::raw_os_error`], or the nearest one for its kind.
pub fn errno_of(error: &Error) -> i32 {
    error
        .raw_os_error()
        .unwrap_or_else(|| nearest(error.kind()).raw_os_error())
}

/// The number of an error of the system, or of the library in the form of one.
pub fn errno_of_io(error: &io::Error) -> i32 {
    let ours = error.get_ref().and_then(|inner| inner.downcast_ref());
    match ours {
        Some(ours) => errno_of(ours),
        None => error
            .raw_os_error()
            .unwrap_or_else(|| nearest(error.kind()).raw_os_error()),
    }
}

/// The number of an error of making an image.
pub fn errno_of_making(error: &MkfsError) -> i32 {
    let errno = match error {
        MkfsError::Open { source, .. } | MkfsError::System { source, .. } => {
            return errno_of_io(source);
        }
        MkfsError::Source(source) => return errno_of_source(source),
        MkfsError::Device(device) => return errno_of(&Error::from(device.clone())),
        MkfsError::Occupied(_) => Errno::EXIST,
        MkfsError::Unsupported(_) => Errno::OPNOTSUPP,
        MkfsError::Damaged(_) => Errno::UCLEAN,
        _ => Errno::INVAL,
    };
    errno.raw_os_error()
}

/// The number of an error of reading what is packed.
pub fn errno_of_source(error: &archive::Error) -> i32 {
    let errno = match error {
        archive::Error::Io { source, .. } => return errno_of_io(source),
        archive::Error::Unsupported(_) => Errno::OPNOTSUPP,
        archive::Error::Damaged { .. } => Errno::UCLEAN,
        archive::Error::Limit { .. } => Errno::FBIG,
        archive::Error::Changed(_) => Errno::STALE,
        _ => Errno::INVAL,
    };
    errno.raw_os_error()
}

fn nearest(kind: io::ErrorKind) -> Errno {
    use io::ErrorKind as K;
    match kind {
        K::NotFound => Errno::NOENT,
        K::PermissionDenied => Errno::ACCESS,
        K::AlreadyExists => Errno::EXIST,
        K::ResourceBusy => Errno::BUSY,
        K::WouldBlock => Errno::AGAIN,
        K::InvalidInput | K::UnexpectedEof => Errno::INVAL,
        K::InvalidData => Errno::UCLEAN,
        K::FileTooLarge => Errno::FBIG,
        K::StorageFull => Errno::NOSPC,
        K::ReadOnlyFilesystem => Errno::ROFS,
        K::Unsupported => Errno::OPNOTSUPP,
        K::TimedOut => Errno::TIMEDOUT,
        _ => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use throughline_ext::Reason;

    use super::*;

    #[test]
    fn each_error_has_a_number() {
        let of = |errno: Errno| errno.raw_os_error();
        let open = |source: io::Error| Error::Open {
            path: "image".into(),
            source: Arc::new(source),
        };
        let without = io::Error::new(io::ErrorKind::WouldBlock, "locked");
        assert_eq!(errno_of(&open(without)), of(Errno::AGAIN));
        let with = io::Error::from_raw_os_error(of(Errno::LOOP));
        assert_eq!(errno_of(&open(with)), of(Errno::LOOP));
        let past = Error::Caller(Reason::PastEnd);
        assert_eq!(errno_of(&past), of(Errno::INVAL));
        assert_eq!(errno_of_io(&io::Error::from(past)), of(Errno::INVAL));
        let other = io::Error::other("something");
        assert_eq!(errno_of_io(&other), of(Errno::IO));
        let damaged = MkfsError::Source(archive::Error::Changed("file".into()));
        assert_eq!(errno_of_making(&damaged), of(Errno::STALE));
    }
}
