//! Flags, project and generation, as in `lsattr` and `chattr`; and the checks of flags.

use throughline_ext::{InodeFlags, OpenFor};

use super::Node;
use crate::error::Result;
use crate::ops;

impl Node {
    /// The inode's user-visible flags (`FS_IOC_GETFLAGS`).
    pub fn flags(&self) -> InodeFlags {
        self.fs().flags(self.inode())
    }

    /// Sets the inode's flags (`FS_IOC_SETFLAGS`): all flags that can be changed are set as given; read-only
    /// ones are ignored. Does not check the caller's permission.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) for flags that do not exist, have no meaning for
    /// this type of inode, or would require a conversion (extents, journalled data);
    /// [`Reason::NotEmpty`](crate::Reason::NotEmpty) if whether names ignore case changes of a directory that
    /// is not empty;
    /// [`Reason::Permission`](crate::Reason::Permission) for other changes of an inode that stays immutable;
    /// [`Reason::ReadOnly`](crate::Reason::ReadOnly); device errors.
    pub fn set_flags(&self, flags: InodeFlags) -> Result<()> {
        ops::set_flags(self, flags).into_result()
    }

    /// Whether this is a directory whose names are looked up without regard to case (`chattr +F`).
    pub fn ignores_case(&self) -> bool {
        self.fs().ignores_case(self.inode())
    }

    /// The inode's project; 0 if the volume does not have projects.
    pub fn project(&self) -> u32 {
        self.fs().project(self.inode())
    }

    /// Sets the inode's project (part of `FS_IOC_FSSETXATTR`). Does not check the caller's permission.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the volume does not have projects, or its inodes
    /// have no room for them; [`Reason::ReadOnly`](crate::Reason::ReadOnly); device errors.
    pub fn set_project(&self, project: u32) -> Result<()> {
        ops::set_project(self, project).into_result()
    }

    /// The inode's generation, which distinguishes it from earlier inodes with its number
    /// (`FS_IOC_GETVERSION`).
    pub fn version(&self) -> u32 {
        self.fs().generation(self.inode())
    }

    /// Sets the inode's generation (`FS_IOC_SETVERSION`). Does not check the caller's permission.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) on volumes with metadata checksums, which depend on
    /// it (the kernel returns `ENOTTY`); [`Reason::ReadOnly`](crate::Reason::ReadOnly); device errors.
    pub fn set_version(&self, version: u32) -> Result<()> {
        ops::set_version(self, version).into_result()
    }

    /// Checks whether the inode's flags allow this kind of open. Does not check permissions.
    ///
    /// # Errors
    /// [`Reason::Permission`](crate::Reason::Permission): changing an immutable file, or an append-only one
    /// other than at its end.
    pub fn check_open(&self, wanted: OpenFor) -> Result<()> {
        Ok(self.fs().check_open(self.inode(), wanted)?)
    }

    /// Clears a file's setuid bit, and its setgid bit if the file is group-executable: before a write or a
    /// truncation by a caller without the right to keep them. If the file has setgid but is not
    /// group-executable, `is_outsider` says whether the caller is outside the file's group; if so, setgid is
    /// cleared too. Returns whether the mode changed.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::NotFound`](crate::Reason::NotFound) for a freed inode,
    /// [`Reason::ReadOnly`](crate::Reason::ReadOnly); device errors.
    pub fn drop_privileges(&self, is_outsider: impl FnOnce(u32) -> bool) -> Result<bool> {
        ops::drop_privileges(self, is_outsider).into_result()
    }
}
