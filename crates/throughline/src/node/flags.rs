//! What `lsattr` shows and `chattr` sets: flags, project, generation; and what flags forbid.

use throughline_ext::{InodeFlags, OpenFor};

use super::Node;
use crate::error::Result;

impl Node {
    /// Its flags as a program is shown them (`FS_IOC_GETFLAGS`).
    pub fn flags(&self) -> InodeFlags {
        self.fs().flags(self.inode())
    }

    /// Sets its flags (`FS_IOC_SETFLAGS`): all that a program can change become as given, those it is only shown are passed
    /// over. Whether the caller may is not asked.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) for flags that do not exist, that mean nothing on such an inode, or
    /// that would convert it (extents, journalled data, names without case);
    /// [`Reason::Permission`](crate::Reason::Permission) for other changes of what stays immutable;
    /// [`Reason::ReadOnly`](crate::Reason::ReadOnly); the device's.
    pub fn set_flags(&self, flags: InodeFlags) -> Result<()> {
        Ok(self.fs().set_flags(self.inode(), flags)?)
    }

    /// Its project; 0 where the volume has none.
    pub fn project(&self) -> u32 {
        self.fs().project(self.inode())
    }

    /// Puts it into a project (part of `FS_IOC_FSSETXATTR`). Whether the caller may is not asked.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the volume has no projects, or its inodes no room for them;
    /// [`Reason::ReadOnly`](crate::Reason::ReadOnly); the device's.
    pub fn set_project(&self, project: u32) -> Result<()> {
        Ok(self.fs().set_project(self.inode(), project)?)
    }

    /// Its generation, which tells it from earlier inodes of its number (`FS_IOC_GETVERSION`).
    pub fn version(&self) -> u32 {
        self.fs().generation(self.inode())
    }

    /// Sets its generation (`FS_IOC_SETVERSION`). Whether the caller may is not asked.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) on volumes with checksums, which depend on it (the kernel answers
    /// `ENOTTY`); [`Reason::ReadOnly`](crate::Reason::ReadOnly); the device's.
    pub fn set_version(&self, version: u32) -> Result<()> {
        Ok(self.fs().set_generation(self.inode(), version)?)
    }

    /// Whether its flags let it be opened so. Permissions are not asked.
    ///
    /// # Errors
    /// [`Reason::Permission`](crate::Reason::Permission): to change an immutable file, or an append-only one otherwise than
    /// at its end.
    pub fn check_open(&self, wanted: OpenFor) -> Result<()> {
        Ok(self.fs().check_open(self.inode(), wanted)?)
    }

    /// Takes setuid from a file, and setgid where it goes with a right to execute: before a write or a truncation by
    /// someone who has no right to keep them. Where setgid goes with none, `is_outsider` is asked whether the caller is not
    /// of the file's group, and it goes then. Whether the mode is another now.
    ///
    /// # Errors
    /// [`Reason::NotFound`](crate::Reason::NotFound) for one that was freed, [`Reason::ReadOnly`](crate::Reason::ReadOnly);
    /// the device's.
    pub fn drop_privileges(&self, is_outsider: impl FnOnce(u32) -> bool) -> Result<bool> {
        Ok(self.fs().drop_privileges(self.inode(), is_outsider)?)
    }
}
