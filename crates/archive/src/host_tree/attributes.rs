//! Extended attributes of an inode of the host.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{self, XattrFlags};
use rustix::io::{Errno, Result};

/// Longest list of names and longest value that the system calls of Linux return, in bytes.
const MAX_BYTES: usize = 1 << 16;

/// The extended attributes of one inode. All calls fail with ENOSYS where they need `/proc`, and it is not
/// mounted.
#[derive(Clone, Copy, Debug)]
pub enum Attributes<'a> {
    /// Of an open file or directory.
    Open(BorrowedFd<'a>),
    /// Of an inode whose descriptor is only a path (O_PATH).
    Held(BorrowedFd<'a>),
}

impl Attributes<'_> {
    /// All names.
    ///
    /// # Errors
    /// The system's: ENOTSUP from a file system without attributes.
    pub fn names(&self) -> Result<Vec<Vec<u8>>> {
        let listed = match self {
            Attributes::Open(fd) => filled(|bytes| fs::flistxattr(fd, bytes)),
            Attributes::Held(fd) => filled(|bytes| fs::listxattr(path_of(fd), bytes)),
        };
        let listed = listed.map_err(|errno| self.of_inode(errno))?;
        let names = listed.split(|byte| *byte == 0);
        let names = names.filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    /// A value; `None` if there is no such attribute.
    ///
    /// # Errors
    /// The system's.
    pub fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let got = match self {
            Attributes::Open(fd) => filled(|bytes| fs::fgetxattr(fd, name, bytes)),
            Attributes::Held(fd) => filled(|bytes| fs::getxattr(path_of(fd), name, bytes)),
        };
        match got {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NODATA) => Ok(None),
            Err(errno) => Err(self.of_inode(errno)),
        }
    }

    /// Sets a value.
    ///
    /// # Errors
    /// The system's.
    pub fn set(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let flags = XattrFlags::empty();
        let set = match self {
            Attributes::Open(fd) => fs::fsetxattr(fd, name, value, flags),
            Attributes::Held(fd) => fs::setxattr(path_of(fd), name, value, flags),
        };
        set.map_err(|errno| self.of_inode(errno))
    }

    /// Removes an attribute, if it is there.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self, name: &[u8]) -> Result<()> {
        let removed = match self {
            Attributes::Open(fd) => fs::fremovexattr(fd, name),
            Attributes::Held(fd) => fs::removexattr(path_of(fd), name),
        };
        match removed {
            Err(Errno::NODATA) => Ok(()),
            other => other.map_err(|errno| self.of_inode(errno)),
        }
    }

    /// An error of the inode: if its path is missing, `/proc` is.
    fn of_inode(&self, errno: Errno) -> Errno {
        match (self, errno) {
            (Attributes::Held(_), Errno::NOENT) => Errno::NOSYS,
            _ => errno,
        }
    }
}

/// A path that leads to what a descriptor holds, even if that is a symbolic link.
pub(super) fn path_of(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// The output of a call that returns its length, or an error if the buffer is too small.
fn filled(call: impl Fn(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    // Most files have no attributes, or few.
    let mut few = [0; 256];
    match call(&mut few) {
        Ok(len) => Ok(few[..len].to_vec()),
        Err(Errno::RANGE) => {
            let mut bytes = vec![0; MAX_BYTES];
            let len = call(&mut bytes)?;
            bytes.truncate(len);
            bytes.shrink_to_fit();
            Ok(bytes)
        }
        Err(errno) => Err(errno),
    }
}
