//! Quota held for blocks that a mapping is to get: for the clusters that it does not have.

use throughline_extfmt::FileBlock;

use super::clusters;
use crate::error::{Error, Reason, Result};
use crate::inode::{Inode, Inodes};
use crate::quota::limit::Hold;

/// Holds quota for up to `want` blocks of a hole that begins at `first`: for as many as the owners' limits
/// leave room for, to within a power of two. Returns how many. Without limits, for all.
///
/// # Errors
/// `Quota` if there is no room for a single one.
pub(crate) fn blocks(
    fs: &Inodes,
    inode: &Inode,
    first: FileBlock,
    want: u32,
) -> Result<(Option<Hold>, u32)> {
    if !fs.quotas.any_limited() {
        return Ok((None, want));
    }
    let log = fs.geo.cluster_ratio_log;
    let own = first.0 >> log;
    let is_there = log > 0 && {
        let _map = inode.map_shared();
        clusters::cluster_at(fs, inode, own)?.is_some()
    };
    let mut want = want;
    loop {
        let last = first.0.saturating_add(want.saturating_sub(1)) >> log;
        let count = u64::from(last - own) + u64::from(!is_there);
        match fs.hold_clusters(inode, count, 0) {
            Err(Error::Caller(Reason::Quota)) if want > 1 => want /= 2,
            held => return Ok((held?, want)),
        }
    }
}

/// Holds quota for the next block of a directory, which costs nothing if its cluster is the directory's.
///
/// # Errors
/// `Quota`.
pub(crate) fn growth(fs: &Inodes, dir: &Inode) -> Result<Option<Hold>> {
    if !fs.quotas.any_limited() {
        return Ok(None);
    }
    let end = super::size(fs, dir)? >> fs.geo.block_log;
    let begins_cluster = end.trailing_zeros() >= fs.geo.cluster_ratio_log;
    fs.hold_clusters(dir, u64::from(begins_cluster), 0)
}
