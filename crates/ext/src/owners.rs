//! Changes of an inode's owner, group or project, on a volume that keeps their usage.

use crate::attrs::Attrs;
use crate::error::Result;
use crate::inode::Inode;
use crate::quota::limit::Hold;
use crate::quota::{charge, tree};
use crate::xattr;

impl Attrs {
    /// Prepares to give an inode other owners (user, group, project): adds the entries that they lack, and
    /// holds what the inode will count for them. No handle may be open.
    ///
    /// # Errors
    /// `Quota`; `NoSpace`; `Corrupt`; device errors.
    pub(crate) fn prepare_owners(
        &self,
        inode: &Inode,
        new: [Option<u32>; 3],
    ) -> Result<Option<Hold>> {
        if !self.quotas.is_on() {
            return Ok(None);
        }
        if inode.usage.must_count() {
            inode.usage.set_counted(xattr::count_values(self, inode)?);
        }
        let Some(counted) = charge::charge_of(self, inode.ino, &inode.image()) else {
            return Ok(None);
        };
        let mut ids = counted.ids;
        let mut changed = [None; 3];
        for ((id, new), changed) in ids.iter_mut().zip(new).zip(&mut changed) {
            if let Some(new) = new.filter(|new| new != id) {
                *id = new;
                *changed = Some(new);
            }
        }
        self.with_room(|| tree::ensure(self, ids))?;
        let pending = inode.delayed.pending(self.geo.cluster_ratio_log).units << self.geo.block_log;
        let inodes = inode.usage.charged().map_or(0, |charged| charged.inodes);
        charge::hold(self, changed, counted.bytes.saturating_add(pending), inodes)
    }
}
