//! Lack of room below a device: the file system that holds an image is full.

use std::error::Error;
use std::{fmt, io};

/// The source of an [`io::Error`] of a flush that found no room and lost nothing: the device keeps what it
/// could not write, and the flush can be repeated. A plain ENOSPC of a flush says less: the system may have
/// dropped what it could not write.
#[derive(Debug)]
pub struct NoRoom(io::Error);

impl NoRoom {
    /// The error as one of a flush that lost nothing, if it is for lack of room; else unchanged.
    pub fn kept(error: io::Error) -> io::Error {
        match is_no_room(&error) {
            true => io::Error::new(io::ErrorKind::StorageFull, NoRoom(error)),
            false => error,
        }
    }

    /// Whether it is the source of this error.
    pub fn is_source_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|source| source.is::<NoRoom>())
    }
}

/// Whether a write failed because the file system below is full, or a quota or limit of file sizes is
/// reached. It can be repeated once there is room.
pub fn is_no_room(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
    ) || NoRoom::is_source_of(error)
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for NoRoom {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}
