//! The clusters that one file is to get (`bigalloc`): reserved for data in memory, or claimed for data in
//! flight. Only names of clusters and counters, no mapping.
//!
//! ```text
//!   reserve ──► reserved ──► claim ──► claimed, by one or more claims of blocks ──┬─► entered: the file's
//!                  ▲                                                             └─► given back
//!                  └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Invariants:
//! - A cluster is reserved, claimed or the file's, and no two of these; but one that became the file's other
//!   than by write-back may stay reserved until a claim, or until nothing of the file is dirty.
//! - A cluster of the file is claimed once, whatever number of claims need blocks of it, in whatever order
//!   they end. The first that is entered makes it the file's. The last that ends without that releases it.
//! - Reserved clusters are part of the volume's reserved clusters, one each.
//! - Lock order: mapping, [`super::Delayed::state`], this, the allocator. A cluster passes from `claimed` to
//!   the file's mapping with the mapping lock held exclusively. Whoever holds that lock shared finds the
//!   cluster in one of the two.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use throughline_extfmt::FsBlock;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Clusters {
    reserved: BTreeSet<u32>,
    claimed: BTreeMap<u32, Claimed>,
}

/// A cluster that claims have blocks in.
struct Claimed {
    /// Its first block on the volume.
    at: FsBlock,
    /// Claims that are not ended.
    claims: u32,
    /// A claim was entered: the file has the cluster.
    is_owned: bool,
    /// Data in memory relies on it: if it is released, it must be reserved.
    is_reserved: bool,
}

/// A cluster whose claims ended without one being entered.
pub(crate) struct Released {
    pub(crate) at: FsBlock,
    /// The cluster must be reserved again, and is recorded as reserved.
    pub(crate) is_reserved: bool,
}

impl Clusters {
    /// Records a cluster as reserved; `false` if it needs no reservation because it is reserved or claimed.
    pub(crate) fn reserve(&mut self, cluster: u32) -> bool {
        if let Some(claimed) = self.claimed.get_mut(&cluster) {
            claimed.is_reserved = true;
            return false;
        }
        self.reserved.insert(cluster)
    }

    /// Whether a cluster is reserved or claimed.
    pub(crate) fn is_known(&self, cluster: u32) -> bool {
        self.reserved.contains(&cluster) || self.claimed.contains_key(&cluster)
    }

    /// Ends a reservation, which the caller returns to the volume; `false` if there is none.
    pub(crate) fn unreserve(&mut self, cluster: u32) -> bool {
        self.reserved.remove(&cluster)
    }

    /// Ends the reservations in `first..end`. Returns their number.
    pub(crate) fn unreserve_range(&mut self, first: u32, end: u32) -> u64 {
        if first >= end || self.reserved.is_empty() {
            return 0;
        }
        let mut middle = self.reserved.split_off(&first);
        let mut behind = middle.split_off(&end);
        self.reserved.append(&mut behind);
        middle.len() as u64
    }

    /// Ends all reservations. Returns their number.
    pub(crate) fn unreserve_all(&mut self) -> u64 {
        std::mem::take(&mut self.reserved).len() as u64
    }

    /// The first block of a claimed cluster, which gets another claim.
    pub(crate) fn share(&mut self, cluster: u32) -> Option<FsBlock> {
        let claimed = self.claimed.get_mut(&cluster)?;
        claimed.claims = claimed.claims.saturating_add(1);
        Some(claimed.at)
    }

    /// How many of the `most` clusters from `first` on can be claimed as one run, and whether they are
    /// reserved: none of them is claimed, and all are reserved or none is.
    pub(crate) fn run(&self, first: u32, most: u32) -> (u32, bool) {
        let is_reserved = self.reserved.contains(&first);
        let end = first.saturating_add(most);
        let end = match self.claimed.range(first..end).next() {
            Some((claimed, _)) => *claimed,
            None => end,
        };
        if !is_reserved {
            let reserved = self.reserved.range(first..end).next();
            return (reserved.map_or(end, |r| *r) - first, false);
        }
        let together = self.reserved.range(first..end).zip(first..);
        let count = together.take_while(|(there, want)| *there == want).count();
        (count as u32, true)
    }

    /// Records that `count` clusters from `first` on are claimed, at `at` on the volume. They are no longer
    /// reserved.
    pub(crate) fn claim(&mut self, first: u32, (at, count): (FsBlock, u32), ratio_log: u32) {
        for step in 0..count {
            let cluster = first.saturating_add(step);
            let claimed = Claimed {
                at: FsBlock(at.0.saturating_add(u64::from(step) << ratio_log)),
                claims: 1,
                is_owned: false,
                is_reserved: self.reserved.remove(&cluster),
            };
            self.claimed.insert(cluster, claimed);
        }
    }

    /// Ends a claim in these clusters, which the file has now.
    pub(crate) fn entered(&mut self, clusters: RangeInclusive<u32>) {
        for cluster in clusters {
            if let Some(claimed) = self.claimed.get_mut(&cluster) {
                claimed.is_owned = true;
            }
            let _ = self.end(cluster);
        }
    }

    /// Ends a claim in these clusters without effect. Returns those to be released.
    pub(crate) fn given_back(&mut self, clusters: RangeInclusive<u32>) -> Vec<Released> {
        let mut released = Vec::new();
        for cluster in clusters {
            let Some(claimed) = self.end(cluster).filter(|claimed| !claimed.is_owned) else {
                continue;
            };
            if claimed.is_reserved {
                self.reserved.insert(cluster);
            }
            released.push(Released {
                at: claimed.at,
                is_reserved: claimed.is_reserved,
            });
        }
        released
    }

    /// Ends one claim of a cluster. Returns the cluster if that was the last.
    fn end(&mut self, cluster: u32) -> Option<Claimed> {
        let claimed = self.claimed.get_mut(&cluster)?;
        claimed.claims = claimed.claims.saturating_sub(1);
        if claimed.claims > 0 {
            return None;
        }
        self.claimed.remove(&cluster)
    }

    /// Clusters that the file does not have yet.
    pub(crate) fn pending(&self) -> u64 {
        let claimed = self.claimed.values().filter(|c| !c.is_owned).count();
        (self.reserved.len() + claimed) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_claimed_once_and_released_with_its_last_claim() {
        let mut clusters = Clusters::default();
        assert!(clusters.reserve(5) && !clusters.reserve(5));
        assert_eq!(clusters.run(5, 3), (1, true));
        clusters.claim(5, (FsBlock(64), 1), 2);
        assert!(
            !clusters.reserve(5),
            "data in a claimed cluster costs nothing"
        );
        assert_eq!(clusters.share(5), Some(FsBlock(64)));
        assert!(clusters.given_back(5..=5).is_empty());
        let released = clusters.given_back(5..=5);
        assert!(matches!(
            released[..],
            [Released {
                at: FsBlock(64),
                is_reserved: true
            }]
        ));
        assert!(!clusters.reserve(5), "it is reserved again");
        clusters.claim(5, (FsBlock(80), 1), 2);
        assert_eq!(clusters.share(5), Some(FsBlock(80)));
        clusters.entered(5..=5);
        assert_eq!(clusters.pending(), 0);
        assert!(clusters.given_back(5..=5).is_empty(), "the file has it");
        assert_eq!(clusters.share(5), None);
    }

    #[test]
    fn a_run_ends_where_the_reservation_changes_or_at_a_claim() {
        let mut clusters = Clusters::default();
        for cluster in [2, 3, 4, 8] {
            clusters.reserve(cluster);
        }
        clusters.claim(6, (FsBlock(0), 1), 4);
        assert_eq!(clusters.run(2, 10), (3, true));
        assert_eq!(clusters.run(2, 2), (2, true));
        assert_eq!(clusters.run(5, 10), (1, false));
        assert_eq!(clusters.run(7, 10), (1, false));
        assert_eq!(clusters.run(9, 4), (4, false));
        assert_eq!(clusters.unreserve_range(3, 8), 2);
        assert_eq!(clusters.unreserve_all(), 2);
    }
}
