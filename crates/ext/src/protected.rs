//! Inodes whose contents are read-only whatever their permissions: encrypted ones, because there is no key
//! here, and files with fs-verity, whose contents match a hash tree behind their end.
//!
//! As in the kernel without the key, an encrypted inode keeps its attributes writable, and its name can be
//! removed. In an encrypted directory no name can be added or changed.

use throughline_extfmt::features::{Incompat, RoCompat};
use throughline_extfmt::inode::{FileType, InodeFlags};

use crate::error::{Reason, Result};
use crate::inode::{Inode, Inodes};

impl Inodes {
    /// Whether an inode's contents (for a directory, its names) are encrypted.
    pub fn is_encrypted(&self, inode: &Inode) -> bool {
        self.geo.incompat.contains(Incompat::ENCRYPT) && inode.flags.any(InodeFlags::ENCRYPT)
    }

    /// Fails if the contents of a file must not change because it is encrypted or has fs-verity.
    ///
    /// # Errors
    /// `NoKey`; `Permission` for fs-verity.
    pub(crate) fn check_unprotected(&self, inode: &Inode) -> Result<()> {
        if self.is_encrypted(inode) {
            return Err(Reason::NoKey.into());
        }
        let has_verity = self.geo.ro_compat.contains(RoCompat::VERITY)
            && inode.kind == Some(FileType::Regular)
            && inode.flags.any(InodeFlags::VERITY);
        match has_verity {
            true => Err(Reason::Permission.into()),
            false => Ok(()),
        }
    }
}
