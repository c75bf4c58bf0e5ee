//! The volume's own inodes: journal, resize descriptors, quotas, orphan file. They have no names and cannot
//! be given any.

use std::sync::Arc;

use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::{InodeNumber, Superblock};

use crate::attrs::Attrs;
use crate::error::{Reason, Result};
use crate::inode::Inode;

/// The system inodes named by the superblock. They are fixed while the volume is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemInodes([InodeNumber; 5]);

impl SystemInodes {
    pub(crate) fn of(sb: &Superblock) -> Self {
        let named = [
            sb.s_journal_inum,
            sb.s_usr_quota_inum,
            sb.s_grp_quota_inum,
            sb.s_prj_quota_inum,
            sb.s_orphan_file_inum,
        ];
        Self(named.map(|ino| InodeNumber(ino.get())))
    }
}

impl Attrs {
    /// Whether an inode is the volume's own: it has a reserved number or is named by the superblock.
    pub(crate) fn is_system_inode(&self, ino: InodeNumber) -> bool {
        let reserved = ino < self.geo.first_ino && ino != InodeNumber::ROOT;
        reserved || self.system.0.contains(&ino)
    }

    /// As [`crate::Inodes::inode`], for a number that does not come from a name: numbers past the last inode,
    /// the volume's own inodes and the inodes of attribute values count as missing, not as damage.
    ///
    /// # Errors
    /// The same.
    pub fn inode_for_caller(&self, ino: InodeNumber) -> Result<Arc<Inode>> {
        if self.is_system_inode(ino) || self.geo.inode_place(ino).is_none() {
            return Err(Reason::NotFound.into());
        }
        let inode = self.inode(ino)?;
        // On a volume not yet written to, a name may lead to a directory that damage has flagged so.
        let is_named = inode.is_dir() && self.is_as_found();
        if inode.raw.read().flags().contains(InodeFlags::EA_INODE) && !is_named {
            return Err(Reason::NotFound.into());
        }
        Ok(inode)
    }
}
