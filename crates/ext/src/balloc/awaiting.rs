//! Freed blocks that nobody gets yet: those whose freeing is not durable.
//!
//! ```text
//!   free ──► (bit clear in the transaction T, its map says "in use") ──► T is durable ──► free in the map
//! ```
//!
//! A crash before that brings them back to who had them, whose data must be there then, and nobody else's in its place. So
//! they wait until [`Journal::committed`](throughline_journal::Journal::committed) has come to T. Nobody is told when it
//! has: whoever looks for blocks, or frees some, first gives those that are durable to the maps.
//!
//! Whoever finds no space while blocks wait makes their transaction durable and looks again ([`crate::Data::with_room`]). That frees
//! all that wait, so it happens once in as many blocks as the volume has left to give, not once a call.
//!
//! Invariants:
//! - A group with such blocks stays in memory: what its bitmap on disk shows as free would else be given out.
//! - They are a part of `free` in the counts, and of nothing else there.
//! - The queue ascends by transaction: a handle of the next one begins when those of this one have ended.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};
use throughline_extfmt::GroupNumber;
use throughline_journal::Tid;

use super::Blocks;
use crate::handle::Handle;
use crate::lock_order::{Held, Rank, locked};

/// Stretches of blocks that leave the queue at once to be discarded.
const DURABLE_AT_ONCE: usize = 256;

/// See the head of this file.
#[derive(Default)]
pub(super) struct Awaiting {
    queue: Mutex<VecDeque<Freed>>,
    /// Held by whoever discards blocks that have left the queue.
    trimming: Mutex<()>,
}

/// Adjacent blocks of one group, freed in one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Freed {
    tid: Tid,
    pub(super) group: GroupNumber,
    pub(super) first: u32,
    pub(super) len: u32,
}

impl Freed {
    /// Takes `next` in, where the two are one.
    fn join(&mut self, next: &Self) -> bool {
        if (self.tid, self.group) != (next.tid, next.group) {
            return false;
        }
        if self.first.saturating_add(self.len) == next.first {
            self.len = self.len.saturating_add(next.len);
            return true;
        }
        let in_front = next.first.saturating_add(next.len) == self.first;
        if in_front {
            self.first = next.first;
            self.len = self.len.saturating_add(next.len);
        }
        in_front
    }
}

/// The first in the queue, if its freeing is durable.
fn pop_durable(queue: &mut VecDeque<Freed>, committed: Tid) -> Option<Freed> {
    queue
        .front()
        .is_some_and(|freed| !freed.tid.is_after(committed))
        .then(|| queue.pop_front())
        .flatten()
}

impl Awaiting {
    fn lock(&self) -> Held<MutexGuard<'_, VecDeque<Freed>>> {
        locked(Rank::Freed, 0, || self.queue.lock())
    }

    pub(super) fn lock_trimming(&self) -> Held<MutexGuard<'_, ()>> {
        locked(Rank::Trimming, 0, || self.trimming.lock())
    }

    /// Takes blocks in whose bits `h` has cleared.
    pub(super) fn push(&self, h: &Handle<'_>, group: GroupNumber, first: u32, len: u32) {
        let freed = Freed {
            tid: h.tid(),
            group,
            first,
            len,
        };
        let mut queue = self.lock();
        if !queue.back_mut().is_some_and(|last| last.join(&freed)) {
            queue.push_back(freed);
        }
    }
}

impl Blocks {
    /// Gives the blocks whose freeing has become durable to the maps; where they are to be discarded first, that is left to
    /// whoever does it ([`super::trim`]). Mapping locks may be held.
    pub(crate) fn settle_freed(&self) {
        if self.balloc.discards() {
            return;
        }
        let mut queue = self.balloc.awaiting.lock();
        if queue.is_empty() {
            return;
        }
        let committed = self.durable_tid();
        while let Some(freed) = pop_durable(&mut queue, committed) {
            self.settle_one(&freed);
        }
    }

    /// Takes some blocks out of the queue whose freeing has become durable: the caller's to [settle](Blocks::settle_one).
    pub(super) fn take_durable(&self) -> Vec<Freed> {
        let mut queue = self.balloc.awaiting.lock();
        let committed = self.durable_tid();
        std::iter::from_fn(|| pop_durable(&mut queue, committed))
            .take(DURABLE_AT_ONCE)
            .collect()
    }

    /// Gives blocks that have left the queue to their map.
    pub(super) fn settle_one(&self, freed: &Freed) {
        // Its group is in memory, so that this reads nothing and cannot fail.
        let settled = self.with_map(freed.group, |map| map.settled(freed.first, freed.len));
        debug_assert!(settled.is_ok(), "a group with freed blocks left the memory");
        self.balloc.settled(freed.len);
    }

    /// What was freed in this transaction and before may be used again.
    fn durable_tid(&self) -> Tid {
        #[cfg(feature = "planted")]
        if self
            .journal
            .has_bug(throughline_journal::Planted::FreedReused)
        {
            return self.journal.running();
        }
        self.journal.committed()
    }
}
