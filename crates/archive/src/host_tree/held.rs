//! An inode that a name led to, whatever becomes of the name.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, CWD, FileType, Gid, Mode, OFlags, Timestamps, Uid};
use rustix::io::{Errno, Result};

use super::Unreached;
use super::attributes::{Attributes, path_of};
use super::calls::{self, Status, fstat};

/// An inode that is held by a descriptor, and its status at that time. Its kind and its number stay what they
/// are.
#[derive(Debug)]
pub struct Held {
    fd: OwnedFd,
    /// Whether the descriptor is that of an open directory, and not only a path (O_PATH).
    is_open: bool,
    status: Status,
}

impl Held {
    /// Looks at a name in a directory. A link is held itself. Needs no rights to what the name leads to, and
    /// opens none of it.
    ///
    /// # Errors
    /// The system's.
    pub fn look(dir: impl AsFd, name: &OsStr) -> Result<Held> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Held::new(fs::openat(dir, name, flags, Mode::empty())?, false)
    }

    /// As [`Held::look`], of what its directory lists as that type. Directories and regular files are opened
    /// if they may be read: a path below `/proc` is slower, and a file system that is mounted on demand is
    /// mounted then.
    ///
    /// # Errors
    /// The system's.
    pub fn look_at(dir: impl AsFd, name: &OsStr, listed: FileType) -> Result<Held> {
        let opened = match listed {
            FileType::Directory => open_folder(&dir, name),
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NOCTTY;
                let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
                fs::openat(&dir, name, flags, Mode::empty())
            }
            _ => return Held::look(dir, name),
        };
        if let Ok(fd) = opened {
            let held = Held::new(fd, true)?;
            if held.status.kind() == listed {
                return Ok(held);
            }
        }
        // Without the right to read it, or something else by now.
        Held::look(dir, name)
    }

    fn new(fd: OwnedFd, is_open: bool) -> Result<Held> {
        Ok(Held {
            status: fstat(&fd)?,
            fd,
            is_open,
        })
    }

    /// The status when it was looked at.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// The system's.
    pub fn link_target(&self) -> Result<Vec<u8>> {
        Ok(fs::readlinkat(&self.fd, "", Vec::new())?.into_bytes())
    }

    /// Gives it another name, in an open directory.
    ///
    /// # Errors
    /// The system's; [`Unreached::Replaced`] if `/proc` is not mounted and `own`, the directory and the name
    /// that led to it, lead to something else.
    pub fn link(
        &self,
        own: (impl AsFd, &OsStr),
        (dir, name): (impl AsFd, &OsStr),
    ) -> std::result::Result<(), Unreached> {
        let linked = fs::linkat(CWD, path_of(&self.fd), &dir, name, AtFlags::SYMLINK_FOLLOW);
        if linked != Err(Errno::NOENT) {
            return linked.map_err(Unreached::Failed);
        }
        fs::linkat(own.0, own.1, &dir, name, AtFlags::empty())?;
        let now = calls::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if now.identity != self.status.identity {
            calls::unlinkat(&dir, name)?;
            return Err(Unreached::Replaced);
        }
        Ok(())
    }

    /// Its extended attributes.
    pub fn attributes(&self) -> Attributes<'_> {
        match self.is_open {
            true => Attributes::Open(self.fd.as_fd()),
            false => Attributes::Held(self.fd.as_fd()),
        }
    }

    /// Sets the owner and the group, where they are given.
    ///
    /// # Errors
    /// The system's.
    pub fn chown(&self, uid: Option<Uid>, gid: Option<Gid>) -> Result<()> {
        calls::chown_held(&self.fd, uid, gid)
    }

    /// Sets the permissions.
    ///
    /// # Errors
    /// The system's; ENOTSUP for a symbolic link, and if `/proc` is not mounted.
    pub fn chmod(&self, mode: Mode) -> Result<()> {
        if self.status.kind() == FileType::Symlink {
            return Err(Errno::NOTSUP);
        }
        calls::chmod(&path_of(&self.fd), mode).map_err(|errno| match errno {
            Errno::NOENT => Errno::NOTSUP,
            other => other,
        })
    }

    /// Sets the times of the last access and the last modification.
    ///
    /// # Errors
    /// The system's.
    pub fn set_times(&self, times: &Timestamps) -> Result<()> {
        match fs::utimensat(&self.fd, "", times, AtFlags::EMPTY_PATH) {
            // Before Linux 5.8.
            Err(Errno::INVAL) => fs::utimensat(CWD, path_of(&self.fd), times, AtFlags::empty()),
            other => other,
        }
    }
}

/// Opens a directory by its name, to read it and as a place to open others in. A link is not followed.
pub(super) fn open_folder(dir: impl AsFd, name: &OsStr) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::empty())
}

/// Opens the regular file that a name led to, perhaps through links (`follow`), and which `is_known`
/// recognizes. Does not wait, even if there is a fifo by now.
///
/// # Errors
/// [`Unreached::Replaced`] if it is not that file.
pub fn open_file(
    dir: impl AsFd,
    name: &OsStr,
    access: OFlags,
    follow: bool,
    is_known: impl Fn(&Status) -> bool,
) -> std::result::Result<(File, Status), Unreached> {
    let links = if follow {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
    let flags = access | links | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match fs::openat(&dir, name, flags, Mode::empty()) {
        // Another process has a lease on it, and is to give it up first.
        Err(Errno::AGAIN) => {
            let flags = OFlags::PATH | links | OFlags::CLOEXEC;
            let held = Held::new(fs::openat(&dir, name, flags, Mode::empty())?, false)?;
            check(&held.status, &is_known)?;
            fs::openat(
                CWD,
                path_of(&held.fd),
                access | OFlags::CLOEXEC,
                Mode::empty(),
            )
        }
        // What a fifo or a socket answers that is there by now.
        Err(Errno::NXIO) => return Err(Unreached::Replaced),
        other => other,
    };
    let file = File::from(opened?);
    let status = fstat(&file)?;
    check(&status, &is_known)?;
    Ok((file, status))
}

fn check(found: &Status, is_known: impl Fn(&Status) -> bool) -> std::result::Result<(), Unreached> {
    match found.kind() == FileType::RegularFile && is_known(found) {
        true => Ok(()),
        false => Err(Unreached::Replaced),
    }
}
