//! Quota held for more of an inode. It is held until it is charged, so that two operations do not pass a
//! limit together. With `bigalloc`, whole clusters are charged, and held.

use super::{Inode, Inodes};
use crate::error::Result;
use crate::quota::charge;
use crate::quota::limit::Hold;

impl Inodes {
    /// Holds quota for that many clusters and inodes.
    ///
    /// # Errors
    /// `Quota`.
    pub(crate) fn hold_clusters(
        &self,
        inode: &Inode,
        count: u64,
        inodes: u64,
    ) -> Result<Option<Hold>> {
        if !self.quotas.any_limited() {
            return Ok(None);
        }
        let bytes = self.cluster_bytes(count);
        charge::hold_for(self, (inode.ino, &inode.image()), bytes, inodes)
    }

    /// The bytes of that many clusters; of blocks without `bigalloc`.
    pub(crate) fn cluster_bytes(&self, count: u64) -> u64 {
        count << (self.geo.block_log + self.geo.cluster_ratio_log)
    }
}
