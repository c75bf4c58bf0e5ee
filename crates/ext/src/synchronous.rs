//! Changes that are durable when the call returns, as required by a mount option or an inode flag: all
//! changes (`sync`, flag `S`), or changes of names (`dirsync`, flag `D` of a directory).
//!
//! The operation first releases its locks and then waits for its transaction, so concurrent changes share the
//! commit.

#[cfg(test)]
mod tests;

use throughline_extfmt::inode::InodeFlags;

use crate::data::Data;
use crate::emptied;
use crate::error::Result;
use crate::inode::Inode;

impl Data {
    /// Call after names in these directories changed: if one of them requires it, returns when that is
    /// durable. No lock may be held.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn names_changed(&self, dirs: &[&Inode]) -> Result<()> {
        let flags = InodeFlags::SYNC | InodeFlags::DIRSYNC;
        for dir in dirs {
            if self.synchronous.names || dir.flags.any(flags) {
                self.sync_through(dir.changes.last(false))?;
            }
        }
        Ok(())
    }

    /// Call after a file's data was written; as [`Data::names_changed`]. Times may follow later.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn data_changed(&self, inode: &Inode) -> Result<()> {
        if self.is_synchronous(inode) {
            self.sync_inode(inode, true, Ok(()))?;
        }
        Ok(())
    }

    /// Call after an inode's attributes changed; as [`Data::names_changed`].
    ///
    /// # Errors
    /// The same.
    pub(crate) fn attributes_changed(&self, inode: &Inode) -> Result<()> {
        if self.is_synchronous(inode) {
            if inode.emptied.is_some() {
                // They wait for the truncation.
                emptied::finish(self, inode)?;
            }
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
