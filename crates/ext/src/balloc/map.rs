//! The free clusters of one group (blocks without `bigalloc`), in memory: what its bitmap says, less claimed
//! clusters and freed ones that wait ([`super::awaiting`]).
//!
//! Invariants: a set bit of `used` is allocated on disk, claimed or waiting; `free` is the number of clear
//! bits; no run of clear bits is longer than `longest`, and no clear bit lies below `first_free`.

use throughline_extfmt::bitmap;

/// See the head of this file.
pub(crate) struct BlockMap {
    /// One bit per cluster, from the group's first block.
    used: Box<[u8]>,
    /// Clusters in the group.
    blocks: u32,
    free: u32,
    claimed: u32,
    awaiting: u32,
    longest: u32,
    first_free: u32,
}

/// Adjacent free blocks of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeRun {
    /// First bit.
    pub(crate) first: u32,
    /// Bits, at least 1.
    pub(crate) len: u32,
}

impl BlockMap {
    /// Builds a map from the first `blocks` bits of an on-disk bitmap.
    pub(crate) fn new(bits: &[u8], blocks: u32) -> Self {
        let used: Box<[u8]> = bits.into();
        let free = bitmap::count_clear(&used, 0..blocks);
        Self {
            used,
            blocks,
            free,
            claimed: 0,
            awaiting: 0,
            longest: free,
            first_free: 0,
        }
    }

    /// Free blocks.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Upper bound on the longest free run.
    pub(crate) fn longest(&self) -> u32 {
        self.longest.min(self.free)
    }

    /// Whether nothing is claimed or waiting, so that the map can be rebuilt from disk.
    pub(crate) fn is_idle(&self) -> bool {
        self.claimed == 0 && self.awaiting == 0
    }

    /// The first free run in a range of bits, clipped to the range.
    pub(crate) fn next_free(&self, range: std::ops::Range<u32>) -> Option<FreeRun> {
        let first = bitmap::find_clear(&self.used, range.clone())?;
        let stop = bitmap::find_set(&self.used, first..range.end).unwrap_or(range.end);
        Some(FreeRun {
            first,
            len: stop.saturating_sub(first),
        })
    }

    /// The free run at exactly `goal`, up to `want` long.
    pub(crate) fn run_at(&self, goal: u32, want: u32) -> Option<FreeRun> {
        let end = goal.checked_add(want)?.min(self.blocks);
        let first = bitmap::find_clear(&self.used, goal..end)?;
        if first != goal {
            return None;
        }
        let stop = bitmap::find_set(&self.used, goal..end).unwrap_or(end);
        Some(FreeRun {
            first,
            len: stop.saturating_sub(first),
        })
    }

    /// The next free run of at least `enough` blocks (at most `want` are returned), from `goal` on, then from
    /// the group's start. If there is none, the longest run. `enough` is at most `want`.
    pub(crate) fn find(&mut self, goal: u32, enough: u32, want: u32) -> Option<FreeRun> {
        let goal = if goal >= self.blocks { 0 } else { goal };
        let mut best: Option<FreeRun> = None;
        // A run that starts before the goal is measured past it, so that a run across the goal is seen whole.
        for (from, to) in [(goal, self.blocks), (self.first_free, goal)] {
            let mut at = from.max(self.first_free);
            while let Some(first) = bitmap::find_clear(&self.used, at..to) {
                // No further than `want`: in an empty group, the end of the run is far away.
                let end = self.blocks.min(first.saturating_add(want));
                let stop = bitmap::find_set(&self.used, first..end).unwrap_or(end);
                let run = FreeRun {
                    first,
                    len: stop.saturating_sub(first),
                };
                if run.len >= enough {
                    return Some(run);
                }
                if best.is_none_or(|best| run.len > best.len) {
                    best = Some(run);
                }
                at = stop;
            }
        }
        self.longest = best.map_or(0, |run| run.len);
        best
    }

    /// Claims a free run.
    pub(crate) fn claim(&mut self, run: FreeRun) {
        bitmap::set_range(&mut self.used, run.first..run.first.saturating_add(run.len));
        self.free = self.free.saturating_sub(run.len);
        self.claimed = self.claimed.saturating_add(run.len);
        if run.first == self.first_free {
            self.first_free = run.first.saturating_add(run.len);
        }
    }

    /// Claims the first free run within `range`.
    pub(crate) fn claim_first(&mut self, range: std::ops::Range<u32>) -> Option<FreeRun> {
        let run = self.next_free(range)?;
        self.claim(run);
        Some(run)
    }

    /// Ends the claim of a range: it is free again.
    pub(crate) fn release(&mut self, first: u32, len: u32) {
        self.claimed = self.claimed.saturating_sub(len);
        self.clear(first, len);
    }

    /// Ends the claim of a range that is now allocated.
    pub(crate) fn confirmed(&mut self, len: u32) {
        self.claimed = self.claimed.saturating_sub(len);
    }

    /// An allocated range was freed on disk and now waits.
    pub(crate) fn freed(&mut self, len: u32) {
        self.awaiting = self.awaiting.saturating_add(len);
    }

    /// From now on, no block from bit `first` on is offered; those in use stay so. Returns the number of
    /// blocks that were free there.
    pub(crate) fn withhold(&mut self, first: u32) -> u32 {
        if first >= self.blocks {
            return 0;
        }
        let lost = bitmap::count_clear(&self.used, first..self.blocks);
        bitmap::set_range(&mut self.used, first..self.blocks);
        self.free = self.free.saturating_sub(lost);
        lost
    }

    /// A freed range that waits is withheld, and never becomes free.
    pub(crate) fn withheld(&mut self, len: u32) {
        self.awaiting = self.awaiting.saturating_sub(len);
    }

    /// A freed range may be reused.
    pub(crate) fn became_reusable(&mut self, first: u32, len: u32) {
        self.awaiting = self.awaiting.saturating_sub(len);
        self.clear(first, len);
    }

    fn clear(&mut self, first: u32, len: u32) {
        bitmap::clear_range(&mut self.used, first..first.saturating_add(len));
        self.free = self.free.saturating_add(len);
        self.first_free = self.first_free.min(first);
        // The range may have merged with its neighbours. The next search that finds no run long enough
        // corrects the bound.
        self.longest = self.free;
    }
}
