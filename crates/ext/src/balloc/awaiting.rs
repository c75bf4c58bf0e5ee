//! Freed blocks that cannot be reused yet because their freeing is not durable.
//!
//! ```text
//!   free ──► (bit clear in the transaction T, its map says "in use") ──► T is durable ──► free in the map
//! ```
//!
//! A crash before that returns them to their old owner, so their contents must not be overwritten yet. They
//! wait until [`Journal::committed`](throughline_journal::Journal::committed) reaches T. There is no
//! notification: each search for blocks, and each freeing, first releases the durable ones to the maps.
//!
//! A caller that finds no space while blocks wait forces their transaction to commit and searches again
//! ([`crate::Data::with_room`]). That releases all waiting blocks at once, so a full volume forces one commit
//! per that many blocks, not one per call.
//!
//! Invariants:
//! - A group with waiting blocks stays in memory: its bitmap on disk already shows them as free.
//! - They count as `free`, and in no other category.
//! - The queue ascends by transaction: handles of a transaction begin only after all handles of the one
//!   before have ended.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use throughline_extfmt::GroupNumber;
use throughline_journal::Tid;
use throughline_locks::{Mutex, MutexGuard, Rank};

use super::Blocks;
use crate::handle::Handle;

/// Runs taken from the queue at once to be discarded.
const DURABLE_AT_ONCE: usize = 256;

/// See the head of this file.
pub(super) struct Awaiting {
    queue: Mutex<VecDeque<Freed>>,
    /// Held while blocks that have left the queue are discarded.
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
    /// Merges `next` into this run if they are adjacent and of the same group and transaction.
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

/// Pops the front of the queue if its freeing is durable.
fn pop_durable(queue: &mut VecDeque<Freed>, committed: Tid) -> Option<Freed> {
    queue
        .front()
        .is_some_and(|freed| !freed.tid.is_after(committed))
        .then(|| queue.pop_front())
        .flatten()
}

impl Default for Awaiting {
    fn default() -> Self {
        Self {
            queue: Mutex::ranked(Rank::Freed, VecDeque::new()),
            trimming: Mutex::ranked(Rank::Trimming, ()),
        }
    }
}

impl Awaiting {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Freed>> {
        self.queue.lock()
    }

    pub(super) fn lock_trimming(&self) -> MutexGuard<'_, ()> {
        self.trimming.lock()
    }

    /// Queues blocks whose bits `h` has cleared.
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
    /// Releases to the maps the blocks whose freeing has become durable. Does nothing if blocks are discarded
    /// first: [`super::trim`] then releases them. Mapping locks may be held.
    pub(crate) fn release_durable(&self) {
        if self.balloc.discards() {
            return;
        }
        let mut queue = self.balloc.awaiting.lock();
        if queue.is_empty() {
            return;
        }
        let committed = self.durable_tid();
        while let Some(freed) = pop_durable(&mut queue, committed) {
            self.release_run(&freed);
        }
    }

    /// Takes some blocks whose freeing is durable out of the queue. The caller must pass them to
    /// [`Blocks::release_run`].
    pub(super) fn take_durable(&self) -> Vec<Freed> {
        let mut queue = self.balloc.awaiting.lock();
        let committed = self.durable_tid();
        std::iter::from_fn(|| pop_durable(&mut queue, committed))
            .take(DURABLE_AT_ONCE)
            .collect()
    }

    /// Releases blocks that have left the queue to their map.
    pub(super) fn release_run(&self, freed: &Freed) {
        // The group is in memory, so this reads nothing and cannot fail.
        let released = self.with_map(freed.group, |map| {
            map.became_reusable(freed.first, freed.len)
        });
        debug_assert!(released.is_ok(), "a group with freed blocks was evicted");
        self.balloc.became_reusable(freed.len);
    }

    /// Blocks freed in this transaction or before may be reused.
    fn durable_tid(&self) -> Tid {
        if self
            .journal
            .has_bug(throughline_journal::Planted::FreedReused)
        {
            return self.journal.running();
        }
        self.journal.committed()
    }
}
