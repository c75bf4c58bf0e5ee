//! A directory of a mounted file system that is not visible in the mount tree. Our own calls use its
//! descriptor; other programs use a path in `/proc`.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, Dir, Mode, OFlags};

use crate::{Error, Result};

/// A borrowed open directory.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a>(BorrowedFd<'a>);

impl<'a> Place<'a> {
    pub(crate) fn new(directory: BorrowedFd<'a>) -> Place<'a> {
        Place(directory)
    }

    /// The path of `name` in it. Programs started by us can open it as long as this directory is open.
    pub(crate) fn path(self, name: &str) -> String {
        let process = std::process::id();
        format!("/proc/{process}/fd/{}/{name}", self.0.as_raw_fd())
    }

    /// Opens `name` with these flags.
    pub(crate) fn open(self, name: &str, flags: OFlags) -> Result<File> {
        let mode = Mode::from_raw_mode(0o644);
        fs::openat(self.0, name, flags | OFlags::CLOEXEC, mode)
            .map(File::from)
            .map_err(|e| failed("open", name, e))
    }

    /// Creates a directory in it and opens it.
    pub(crate) fn make_dir(self, name: &str) -> Result<OwnedFd> {
        fs::mkdirat(self.0, name, Mode::from_raw_mode(0o755))
            .map_err(|e| failed("make", name, e))?;
        self.dir(name)
    }

    /// Opens a directory in it.
    pub(crate) fn dir(self, name: &str) -> Result<OwnedFd> {
        self.open(name, OFlags::DIRECTORY | OFlags::RDONLY)
            .map(OwnedFd::from)
    }

    /// The length of `name` in bytes, from one `stat`.
    pub(crate) fn stat(self, name: &str) -> Result<u64> {
        fs::statat(self.0, name, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| stat.st_size.cast_unsigned())
            .map_err(|e| failed("stat", name, e))
    }

    /// The names in it, without `.` and `..`.
    pub(crate) fn names(self) -> Result<Vec<String>> {
        let failed = |e| failed("list", "the directory", e);
        let mut names = Vec::new();
        for entry in Dir::read_from(self.0).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy();
            if !matches!(&*name, "." | "..") {
                names.push(name.into_owned());
            }
        }
        Ok(names)
    }

    /// Removes the file `name`.
    pub(crate) fn remove(self, name: &str) -> Result<()> {
        fs::unlinkat(self.0, name, AtFlags::empty()).map_err(|e| failed("remove", name, e))
    }

    /// Removes the empty directory `name`.
    pub(crate) fn remove_dir(self, name: &str) -> Result<()> {
        fs::unlinkat(self.0, name, AtFlags::REMOVEDIR).map_err(|e| failed("remove", name, e))
    }
}

fn failed(what: &str, name: &str, errno: rustix::io::Errno) -> Error {
    Error::new(format!("cannot {what} {name}: {errno}"))
}
