//! Quota held for more blocks of an inode. It is held until it is charged, so that two operations do not pass
//! a limit together. With `bigalloc`, whole clusters are charged, and held.

use throughline_extfmt::FileBlock;

use super::{Inode, Inodes};
use crate::error::{Error, Reason, Result};
use crate::map::{self, clusters};
use crate::quota::charge;
use crate::quota::limit::Hold;

impl Inodes {
    /// Holds quota for up to `want` blocks of a hole that begins at `first`: for as many as the owners' limits
    /// leave room for, to within a power of two. Returns how many. Without limits, for all.
    ///
    /// # Errors
    /// `Quota` if there is no room for a single one.
    pub(crate) fn hold_blocks(
        &self,
        inode: &Inode,
        first: FileBlock,
        want: u32,
    ) -> Result<(Option<Hold>, u32)> {
        if !self.quotas.any_limited() {
            return Ok((None, want));
        }
        let image = inode.image();
        let log = self.geo.cluster_ratio_log;
        let own = first.0 >> log;
        let is_there = log > 0 && {
            let _map = inode.map_shared();
            clusters::cluster_at(self, inode, own)?.is_some()
        };
        let mut want = want;
        loop {
            let last = first.0.saturating_add(want.saturating_sub(1)) >> log;
            let count = u64::from(last - own) + u64::from(!is_there);
            match charge::hold_for(self, (inode.ino, &image), self.cluster_bytes(count), 0) {
                Err(Error::Caller(Reason::Quota)) if want > 1 => want /= 2,
                held => return Ok((held?, want)),
            }
        }
    }

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

    /// Holds quota for the next block of a directory, which is free if its cluster is the directory's.
    ///
    /// # Errors
    /// `Quota`.
    pub(crate) fn hold_growth(&self, dir: &Inode) -> Result<Option<Hold>> {
        if !self.quotas.any_limited() {
            return Ok(None);
        }
        let end = map::size(self, dir)? >> self.geo.block_log;
        let begins_cluster = end.trailing_zeros() >= self.geo.cluster_ratio_log;
        self.hold_clusters(dir, u64::from(begins_cluster), 0)
    }

    /// The bytes of that many clusters; of blocks without `bigalloc`.
    pub(crate) fn cluster_bytes(&self, count: u64) -> u64 {
        count << (self.geo.block_log + self.geo.cluster_ratio_log)
    }
}
