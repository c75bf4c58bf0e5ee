//! Changes that survive a crash when the call returns, as a mount option or an inode's flag demands: of everything
//! (`sync`, the flag `S`), or of names (`dirsync`, the flag `D` of a directory).
//!
//! The transaction of the change is awaited, after the operation has let go of its locks: what others do at the same time
//! goes out with the same commit.

#[cfg(test)]
mod tests;

use throughline_extfmt::inode::InodeFlags;

use crate::data::Data;
use crate::error::Result;
use crate::inode::Inode;

impl Data {
    /// Names of these directories changed: where one of them demands it, returns when that is durable. No lock is held.
    ///
    /// # Errors
    /// What the device says.
    pub(crate) fn names_changed(&self, dirs: &[&Inode]) -> Result<()> {
        let flags = InodeFlags::SYNC | InodeFlags::DIRSYNC;
        for dir in dirs {
            if self.synchronous.names || dir.flags.any(flags) {
                self.sync_through(dir.changes.last(false))?;
            }
        }
        Ok(())
    }

    /// Bytes of a file were written: as [`Data::names_changed`], for them. Times may be later.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn data_changed(&self, inode: &Inode) -> Result<()> {
        if self.is_synchronous(inode) {
            self.sync_data(inode)?;
        }
        Ok(())
    }

    /// Attributes of an inode changed: as [`Data::names_changed`], for them.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn attributes_changed(&self, inode: &Inode) -> Result<()> {
        if self.is_synchronous(inode) {
            self.sync_through(inode.changes.last(false))?;
        }
        Ok(())
    }

    /// Whether every change is durable when its call returns.
    pub(crate) fn is_all_synchronous(&self) -> bool {
        self.synchronous.everything
    }

    fn is_synchronous(&self, inode: &Inode) -> bool {
        self.synchronous.everything || inode.flags.any(InodeFlags::SYNC)
    }
}
