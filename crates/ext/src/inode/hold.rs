//! Quota held for more blocks of an inode.

use super::{Inode, Inodes};
use crate::error::{Error, Reason, Result};
use crate::quota::charge;
use crate::quota::limit::Hold;

impl Inodes {
    /// Holds quota for up to `want` blocks of an inode: for as many as its owners' limits leave room for, to
    /// within a power of two. Returns how many. Without limits, for all.
    ///
    /// # Errors
    /// `Quota` if there is no room for a single one.
    pub(crate) fn hold_blocks(&self, inode: &Inode, want: u32) -> Result<(Option<Hold>, u32)> {
        if !self.quotas.any_limited() {
            return Ok((None, want));
        }
        let image = inode.image();
        let mut want = want;
        loop {
            let bytes = u64::from(want) << self.geo.block_log;
            match charge::hold_for(self, (inode.ino, &image), bytes, 0) {
                Err(Error::Caller(Reason::Quota)) if want > 1 => want /= 2,
                held => return Ok((held?, want)),
            }
        }
    }

    /// Checks that the owners' limits leave room for that many blocks and inodes.
    ///
    /// # Errors
    /// `Quota`.
    pub(crate) fn check_limits(&self, inode: &Inode, blocks: u64, inodes: u64) -> Result<()> {
        if !self.quotas.any_limited() {
            return Ok(());
        }
        let bytes = blocks << self.geo.block_log;
        charge::hold_for(self, (inode.ino, &inode.image()), bytes, inodes).map(drop)
    }
}
