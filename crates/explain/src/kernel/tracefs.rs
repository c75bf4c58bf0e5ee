//! The kernel's tracing files, on a private mount. The mount needs no directory. It ends when this value is
//! dropped, or when the process ends, even by SIGKILL.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{self, FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::{Error, Result};

/// The largest file read at once: formats and statistics.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Initial buffer of a read. Most files are smaller.
const FIRST_READ_BYTES: usize = 8 << 10;

/// An open directory of the tracing files.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

/// Mounts a file system of this type.
///
/// # Errors
/// Says what is missing: the permission, or tracing in this kernel.
pub(super) fn mounted(fs_type: &str) -> Result<Folder> {
    let mount = || -> rustix::io::Result<OwnedFd> {
        let context = mount::fsopen(fs_type, FsOpenFlags::FSOPEN_CLOEXEC)?;
        mount::fsconfig_create(&context)?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        mount::fsmount(&context, flags, MountAttrFlags::empty())
    };
    mount().map(Folder).map_err(|errno| {
        Error::new(match errno {
            Errno::PERM | Errno::ACCESS => {
                "only root can use the kernel's tracepoints: run it with sudo".to_owned()
            }
            Errno::NODEV => {
                format!(
                    "this kernel has no {fs_type}: it was built without tracing (CONFIG_FTRACE)"
                )
            }
            Errno::NOSYS => {
                "this kernel is too old: a mount without a mount point needs Linux 5.2".to_owned()
            }
            errno => format!("cannot mount {fs_type}: {}", io::Error::from(errno)),
        })
    })
}

impl Folder {
    fn at(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        Ok(fs::openat(&self.0, path, flags, Mode::empty())?)
    }

    /// A directory in it.
    pub(super) fn folder(&self, path: &str) -> io::Result<Folder> {
        self.at(path, OFlags::RDONLY | OFlags::DIRECTORY)
            .map(Folder)
    }

    /// A file in it, read without blocking.
    pub(super) fn stream(&self, path: &str) -> io::Result<File> {
        self.at(path, OFlags::RDONLY | OFlags::NONBLOCK)
            .map(File::from)
    }

    /// Reads a file in it.
    pub(super) fn read(&self, path: &str) -> io::Result<String> {
        let file = File::from(self.at(path, OFlags::RDONLY)?);
        // Some of these files return their content in a single read, up to the buffer's size.
        let mut text = Vec::with_capacity(FIRST_READ_BYTES);
        file.take(MAX_FILE_BYTES).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Writes to a file in it, in a single call as the kernel requires.
    pub(super) fn write(&self, path: &str, text: &str) -> io::Result<()> {
        File::from(self.at(path, OFlags::WRONLY)?).write_all(text.as_bytes())
    }

    pub(super) fn make(&self, name: &str) -> io::Result<()> {
        Ok(fs::mkdirat(&self.0, name, Mode::RWXU)?)
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// The names in it that are valid text.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(self.0.as_fd())? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && !name.starts_with('.')
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tracefs_is_distinguished_from_missing_rights() {
        let error = mounted("no-such-tracefs").expect_err("there is none");
        let expected = match rustix::process::geteuid().is_root() {
            // In a container, even root may lack permission to mount.
            true => ["CONFIG_FTRACE", "only root"],
            false => ["only root", "only root"],
        };
        let error = error.to_string();
        assert!(expected.iter().any(|text| error.contains(text)), "{error}");
    }
}
