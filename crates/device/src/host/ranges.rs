//! [`RangeLocks`]: locks on ranges of a file, by which processes share work.
//!
//! They are locks of the open file description, as those of images: they end with the process, however it
//! ends, and exclude every other [`RangeLocks`] of the file, also of this process.

use std::fs::File;
use std::io;
use std::ops::Range;

use super::lock::set_range;

/// An open file for locks on parts of it. What is in the file does not matter.
#[derive(Debug)]
pub struct RangeLocks {
    file: File,
}

impl RangeLocks {
    /// Takes a file that is open for writing.
    pub fn new(file: File) -> RangeLocks {
        RangeLocks { file }
    }

    /// Locks these bytes. Returns whether it could: no other has a lock on one of them.
    ///
    /// # Errors
    /// Of the system: there are file systems without locks.
    pub fn try_lock(&self, bytes: Range<u64>) -> io::Result<bool> {
        match set_range(&self.file, libc::F_WRLCK, bytes) {
            Ok(()) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Ends the locks on these bytes, if there are any of this one.
    ///
    /// # Errors
    /// Of the system.
    pub fn unlock(&self, bytes: Range<u64>) -> io::Result<()> {
        set_range(&self.file, libc::F_UNLCK, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_exclude_each_other_until_they_are_unlocked_or_closed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || RangeLocks::new(file.reopen().unwrap());
        let (one, other) = (open(), open());
        let far = 1 << 62;
        assert!(one.try_lock(far..far + 4).unwrap());
        assert!(!other.try_lock(far + 3..far + 6).unwrap());
        assert!(other.try_lock(far + 4..far + 6).unwrap());
        one.unlock(far..far + 2).unwrap();
        assert!(other.try_lock(far..far + 2).unwrap());
        assert!(!other.try_lock(far + 2..far + 3).unwrap());
        // It has none of these.
        other.unlock(far + 2..far + 3).unwrap();
        assert!(!other.try_lock(far + 2..far + 3).unwrap());
        drop(one);
        assert!(other.try_lock(far + 2..far + 3).unwrap());
        assert!(other.try_lock(5..5).unwrap());
        assert!(open().try_lock(5..6).unwrap());
        let past = other.try_lock(u64::MAX - 1..u64::MAX);
        assert_eq!(past.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
