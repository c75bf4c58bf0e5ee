//! Whether a directory ignores case (`chattr +F`): changed only while it is empty, so that no name is stored
//! under another hash than it is looked up by.

use throughline_extfmt::features::Incompat;
use throughline_extfmt::inode::InodeFlags;

use super::{is_there, need_dir};
use crate::dir;
use crate::error::{Error, Reason, Result};
use crate::inode::Inode;
use crate::names::Names;

impl Names {
    /// Sets the flags of an inode (`FS_IOC_SETFLAGS`): all flags that a program can change are set as given;
    /// those that are only shown are ignored. The caller must check permission: only the owner may, and
    /// immutable and append-only need a capability. When a file becomes immutable, its data is on the device
    /// when this returns.
    ///
    /// # Errors
    /// `Unsupported` for flags that are never shown, that have no meaning on such an inode, or that would
    /// change the storage format (journaled data); for case-insensitive names on a volume without them, or
    /// with another change of the format; also if the extents flag changes and the file is too large to
    /// convert, in which case its other flags have been changed. `NotDir`, `NotEmpty`, `NoKey` if whether
    /// names ignore case changes. `Permission` for other changes of an inode that stays immutable;
    /// `ReadOnly`; device errors.
    pub fn set_flags(&self, inode: &Inode, flags: InodeFlags) -> Result<()> {
        self.check_writable()?;
        let changed = self.flags(inode) ^ flags;
        let known = self.geo.incompat.contains(Incompat::CASEFOLD);
        if !known || !changed.contains(InodeFlags::CASEFOLD) {
            return self.set_flags_and(inode, flags, false);
        }
        need_dir(inode)?;
        if self.is_encrypted(inode) {
            return Err(Reason::NoKey.into());
        }
        if changed.contains(InodeFlags::EXTENTS) {
            let what = "changing extents and case-insensitive names at once";
            return Err(Error::Unsupported(what.into()));
        }
        let _names = inode.dir_exclusive();
        is_there(inode)?;
        if !dir::is_empty(self, inode)? {
            return Err(Reason::NotEmpty.into());
        }
        self.set_flags_and(inode, flags, true)
    }
}
