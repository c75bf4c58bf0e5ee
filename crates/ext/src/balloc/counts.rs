//! The allocator's counts, in clusters: how many each holder is entitled to, before specific ones are chosen.
//!
//! ```text
//!   free (according to the bitmaps)
//!   ├─ claimed       chosen for a file or its mapping, not yet allocated in the bitmap
//!   ├─ promised      to searches in progress
//!   ├─ reserved      reserved for data in memory that is not written yet
//!   ├─ out_of_reach  in a damaged group, or behind the limit of a volume that is to become smaller
//!   ├─ awaiting      freed by a transaction that is not durable yet
//!   └─ the rest      available to any caller, as far as the reserves allow
//! ```

use std::sync::atomic::Ordering;

use throughline_extfmt::GroupNumber;

use super::{Balloc, Purpose};
use crate::error::{Reason, Result};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Free as the bitmaps on disk say.
    pub(super) free: u64,
    /// Of those, claimed.
    pub(super) claimed: u64,
    /// Of those, promised to searches in progress.
    pub(super) promised: u64,
    /// Of those, reserved for data not written yet.
    pub(super) reserved: u64,
    /// Of those, freed by a transaction that is not durable yet.
    pub(super) awaiting: u64,
    /// Of those, in damaged groups or withheld.
    pub(super) out_of_reach: u64,
}

impl Counts {
    /// Free blocks that are neither claimed, promised, reserved nor in a damaged group. Those that await a
    /// commit are among them.
    fn unclaimed(&self) -> u64 {
        self.free
            .saturating_sub(self.claimed)
            .saturating_sub(self.promised)
            .saturating_sub(self.reserved)
            .saturating_sub(self.out_of_reach)
    }

    /// Blocks in none of these shares, less `untouchable`.
    fn left(&self, untouchable: u64) -> u64 {
        self.unclaimed()
            .saturating_sub(self.awaiting)
            .saturating_sub(untouchable)
    }

    fn left_for(&self, purpose: Purpose, balloc: &Balloc) -> u64 {
        match purpose {
            Purpose::Reserved => self.reserved,
            _ => self.left(balloc.kept.from(purpose)),
        }
    }
}

impl Balloc {
    /// Free blocks according to the bitmaps on disk.
    pub(crate) fn free_on_disk(&self) -> u64 {
        self.counts.lock().free
    }

    /// Free blocks that can be allocated now or after the next commit.
    pub(super) fn free_after_commit(&self) -> u64 {
        self.counts.lock().unclaimed()
    }

    /// Marks a group as damaged: its `free` blocks cannot be allocated.
    pub(super) fn pass_over(&self, group: GroupNumber, free: u32) {
        if self.passed_over.lock().insert(group) {
            self.any_passed_over.store(true, Ordering::Release);
            self.counts.lock().out_of_reach += u64::from(free);
        }
    }

    /// Free blocks were withheld.
    pub(super) fn withhold(&self, free: u64) {
        self.counts.lock().out_of_reach += free;
    }

    /// Freed blocks, which count as waiting, are withheld.
    pub(super) fn withheld(&self, blocks: u32) {
        let mut counts = self.counts.lock();
        counts.awaiting = counts.awaiting.saturating_sub(blocks.into());
        counts.out_of_reach = counts.out_of_reach.saturating_add(blocks.into());
    }

    /// Whether a group is known to be damaged.
    pub(super) fn is_passed_over(&self, group: GroupNumber) -> bool {
        self.any_passed_over.load(Ordering::Acquire) && self.passed_over.lock().contains(&group)
    }

    /// Corrects the number of free blocks. Only before anything is claimed.
    pub(crate) fn set_free(&self, free: u64) {
        self.counts.lock().free = free;
    }

    /// Blocks reserved for data not written yet.
    #[cfg(test)]
    pub(crate) fn blocks_reserved(&self) -> u64 {
        self.counts.lock().reserved
    }

    /// Blocks available for data.
    #[cfg(test)]
    pub(crate) fn blocks_left(&self) -> u64 {
        self.counts.lock().left_for(Purpose::Data, self)
    }

    /// Promises 1 to `want` clusters to a search, which then chooses them. If all remaining blocks are
    /// promised to other searches, waits until those end, since they may use fewer. A search holds its
    /// promise before it starts, so it never waits here.
    pub(super) fn promise(&self, want: u32, purpose: Purpose) -> Result<Promise<'_>> {
        self.with_reserve(purpose, |purpose| self.promise_from(want, purpose))
    }

    fn promise_from(&self, want: u32, purpose: Purpose) -> Result<Promise<'_>> {
        let mut counts = self.counts.lock();
        loop {
            let promised = u64::from(want).min(counts.left_for(purpose, self));
            if promised != 0 {
                counts.promised += promised;
                if purpose == Purpose::Reserved {
                    counts.reserved -= promised;
                }
                return Ok(Promise {
                    balloc: self,
                    clusters: promised as u32,
                    claimed: 0,
                    purpose,
                });
            }
            if counts.promised == 0 || purpose == Purpose::Reserved {
                return Err(Reason::NoSpace.into());
            }
            self.search_ended.wait(&mut counts);
        }
    }

    /// Reserves all of `blocks` or none. Waits for searches as [`Balloc::promise`] does.
    pub(super) fn reserve(&self, blocks: u64, purpose: Purpose) -> Result<()> {
        self.with_reserve(purpose, |purpose| self.reserve_from(blocks, purpose))
    }

    fn reserve_from(&self, blocks: u64, purpose: Purpose) -> Result<()> {
        let mut counts = self.counts.lock();
        while counts.left_for(purpose, self) < blocks {
            if counts.promised == 0 {
                return Err(Reason::NoSpace.into());
            }
            self.search_ended.wait(&mut counts);
        }
        counts.reserved += blocks;
        Ok(())
    }

    pub(super) fn reserve_again(&self, blocks: u64) {
        let mut counts = self.counts.lock();
        counts.reserved = counts.reserved.saturating_add(blocks);
    }

    pub(super) fn unreserve(&self, blocks: u64) {
        let mut counts = self.counts.lock();
        debug_assert!(
            counts.reserved >= blocks,
            "more blocks are released than were reserved"
        );
        counts.reserved = counts.reserved.saturating_sub(blocks);
    }

    /// Ends claims; `reserved` of the blocks become reserved again.
    pub(super) fn released(&self, blocks: u32, reserved: u32) {
        let mut counts = self.counts.lock();
        debug_assert!(
            counts.claimed >= blocks.into(),
            "more claims end than began"
        );
        counts.claimed = counts.claimed.saturating_sub(blocks.into());
        counts.reserved = counts.reserved.saturating_add(reserved.into());
    }

    /// Starts claims that had no promise.
    pub(super) fn claimed(&self, blocks: u32) {
        let mut counts = self.counts.lock();
        counts.claimed = counts.claimed.saturating_add(blocks.into());
    }

    pub(super) fn confirmed(&self, blocks: u32) {
        let mut counts = self.counts.lock();
        counts.claimed = counts.claimed.saturating_sub(blocks.into());
        counts.free = counts.free.saturating_sub(blocks.into());
    }

    /// The blocks' bits are clear on disk, but the blocks cannot be reused yet.
    pub(super) fn freed(&self, blocks: u32) {
        let mut counts = self.counts.lock();
        counts.free = counts.free.saturating_add(blocks.into());
        counts.awaiting = counts.awaiting.saturating_add(blocks.into());
    }

    /// Freed blocks may be reused.
    pub(super) fn became_reusable(&self, blocks: u32) {
        let mut counts = self.counts.lock();
        debug_assert!(
            counts.awaiting >= blocks.into(),
            "more blocks become reusable than were waiting"
        );
        counts.awaiting = counts.awaiting.saturating_sub(blocks.into());
    }

    /// Freed blocks that cannot be reused yet.
    pub(crate) fn blocks_awaiting(&self) -> u64 {
        self.counts.lock().awaiting
    }
}

/// Blocks promised to a search. On drop, whatever the outcome, the claimed ones count as claimed and the rest
/// returns to where it came from.
pub(super) struct Promise<'b> {
    balloc: &'b Balloc,
    pub(super) clusters: u32,
    pub(super) claimed: u32,
    purpose: Purpose,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let mut counts = self.balloc.counts.lock();
        counts.promised = counts.promised.saturating_sub(self.clusters.into());
        counts.claimed = counts.claimed.saturating_add(self.claimed.into());
        if self.purpose == Purpose::Reserved {
            counts.reserved += u64::from(self.clusters.saturating_sub(self.claimed));
        }
        drop(counts);
        self.balloc.search_ended.notify_all();
    }
}
