//! The log as a ring of transactions, and their blocks that are not home yet.
//!
//! ```text
//!   first                  tail            head                    end
//!     │ free ...            │ live, oldest  │ free ...              │
//!     └─────────────────────┴──────────────►┴───────────────────────┘ around to first
//! ```
//!
//! Invariants:
//! - Live transactions leave the ring oldest first, each when none of its blocks is pending. Its log space is
//!   reused only after the superblock on disk points past it.
//! - Only the newest committed content of a block is pending; it supersedes all older ones.

use std::collections::{BTreeMap, VecDeque};

use throughline_extfmt::FsBlock;

use crate::cache::SealedBlock;
use crate::tid::Tid;

/// See the head of this file.
pub(crate) struct Ring {
    first: u32,
    end: u32,
    /// Where the next transaction starts.
    pub(crate) head: u32,
    /// Free blocks from `head` on.
    pub(crate) free: u32,
    live: VecDeque<Live>,
    /// The number of the next transaction.
    next: Tid,
    /// Blocks waiting to be written home.
    pub(crate) pending: BTreeMap<FsBlock, Pending>,
    /// A checkpoint's home writes are in flight.
    pub(crate) writing: bool,
}

/// A transaction in the log.
struct Live {
    tid: Tid,
    start: u32,
    blocks: u32,
    /// Number of blocks in [`Ring::pending`] that belong to this transaction.
    pending: usize,
}

/// A committed block that is not home yet.
pub(crate) struct Pending {
    pub(crate) tid: Tid,
    pub(crate) sealed: SealedBlock,
}

impl Ring {
    /// An empty log in the journal blocks `first..end`; the first transaction has the number `next`.
    pub(crate) fn new(first: u32, end: u32, next: Tid) -> Self {
        Self {
            first,
            end,
            head: first,
            free: end - first,
            live: VecDeque::new(),
            next,
            pending: BTreeMap::new(),
            writing: false,
        }
    }

    /// Blocks in the log.
    pub(crate) fn len(&self) -> u32 {
        self.end - self.first
    }

    /// Blocks in use.
    pub(crate) fn used(&self) -> u32 {
        self.len() - self.free
    }

    /// The block after `at`, wrapping around.
    pub(crate) fn after(&self, at: u32) -> u32 {
        if at + 1 >= self.end {
            self.first
        } else {
            at + 1
        }
    }

    /// The start block and number of the oldest live transaction; those of the next one if none is live.
    pub(crate) fn tail(&self) -> (u32, Tid) {
        self.live
            .front()
            .map_or((self.head, self.next), |live| (live.start, live.tid))
    }

    /// Adds a durable transaction that takes `blocks` blocks of the log, up to and not including `head`.
    /// Returns how many older contents need not be written home any more.
    pub(crate) fn push(
        &mut self,
        tid: Tid,
        blocks: u32,
        head: u32,
        contents: Vec<SealedBlock>,
    ) -> u64 {
        self.live.push_back(Live {
            tid,
            start: self.head,
            blocks,
            pending: contents.len(),
        });
        self.head = head;
        self.next = tid.next();
        self.free -= blocks;
        let mut superseded = 0;
        for sealed in contents {
            let entry = Pending { tid, sealed };
            if let Some(old) = self.pending.insert(entry.sealed.buffer.block, entry) {
                self.drop_pending(old.tid);
                superseded += 1;
            }
        }
        superseded
    }

    /// Removes a block freed by the durable transaction `tid` from the pending ones. Returns whether it was
    /// pending.
    pub(crate) fn revoke(&mut self, block: FsBlock, tid: Tid) -> bool {
        // Content logged by the freeing transaction itself or a later one belongs to the reused block.
        let old = self
            .pending
            .get(&block)
            .is_some_and(|p| tid.is_after(p.tid));
        old && self.written(block, None)
    }

    /// Removes a block that is home from the pending ones, unless its pending content is of another
    /// transaction than `tid`. Returns whether it was removed.
    pub(crate) fn written(&mut self, block: FsBlock, tid: Option<Tid>) -> bool {
        let same = |pending: &Pending| tid.is_none_or(|tid| tid == pending.tid);
        if !self.pending.get(&block).is_some_and(same) {
            return false;
        }
        if let Some(old) = self.pending.remove(&block) {
            self.drop_pending(old.tid);
        }
        true
    }

    fn drop_pending(&mut self, tid: Tid) {
        // The numbers in the ring have no gaps.
        let index = self
            .live
            .front()
            .map(|oldest| tid.0.wrapping_sub(oldest.tid.0) as usize);
        if let Some(live) = index.and_then(|index| self.live.get_mut(index)) {
            live.pending -= 1;
        }
    }

    /// Removes the oldest transactions that are home. Returns the number of their log blocks, which are free
    /// once the superblock points past them ([`Ring::release`]).
    pub(crate) fn pop_home(&mut self) -> u32 {
        let mut blocks = 0;
        while let Some(live) = self.live.front().filter(|live| live.pending == 0) {
            blocks += live.blocks;
            self.live.pop_front();
        }
        blocks
    }

    /// Makes blocks of the log free again.
    pub(crate) fn release(&mut self, blocks: u32) {
        self.free += blocks;
    }
}
