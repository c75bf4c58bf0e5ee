//! The log as a ring of transactions, and which of their blocks are not home yet.
//!
//! ```text
//!   first                  tail            head                    end
//!     │ free ...            │ live, oldest  │ free ...              │
//!     └─────────────────────┴──────────────►┴───────────────────────┘ around to first
//! ```
//!
//! Invariants:
//! - A live transaction leaves the ring, oldest first, when none of its blocks is still to be written home; and its
//!   room is used again only after the superblock on disk points behind it.
//! - Of a block, only its newest committed content is pending: it stands for all older ones.

use std::collections::{BTreeMap, VecDeque};

use throughline_extfmt::FsBlock;

use crate::cache::SealedBlock;
use crate::tid::Tid;

/// See the head of this file.
pub(crate) struct Ring {
    first: u32,
    end: u32,
    /// Where the next transaction goes.
    pub(crate) head: u32,
    /// Blocks that it may have.
    pub(crate) free: u32,
    live: VecDeque<Live>,
    /// The number of the transaction that goes to the head.
    next: Tid,
    /// Blocks to be written home.
    pub(crate) pending: BTreeMap<FsBlock, Pending>,
    /// A round of home writes is on its way.
    pub(crate) writing: bool,
}

/// A transaction in the log.
struct Live {
    tid: Tid,
    start: u32,
    blocks: u32,
    /// Blocks of `pending` that are of this transaction.
    pending: usize,
}

/// A committed block that is not home.
pub(crate) struct Pending {
    pub(crate) tid: Tid,
    pub(crate) sealed: SealedBlock,
}

impl Ring {
    /// An empty log of the blocks `first..end`, `next` being the number of the first transaction.
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

    /// Blocks of the log.
    pub(crate) fn len(&self) -> u32 {
        self.end - self.first
    }

    /// Blocks in use.
    pub(crate) fn used(&self) -> u32 {
        self.len() - self.free
    }

    /// The block after `at`, around the end.
    pub(crate) fn after(&self, at: u32) -> u32 {
        if at + 1 >= self.end {
            self.first
        } else {
            at + 1
        }
    }

    /// The oldest live transaction: where it starts, and its number. Where there is none, those of the next.
    pub(crate) fn tail(&self) -> (u32, Tid) {
        self.live
            .front()
            .map_or((self.head, self.next), |live| (live.start, live.tid))
    }

    /// Enters a transaction that is durable: its `blocks` in the log go up to `head`. Answers how many older contents
    /// need not go home any more.
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
                self.settle(old.tid);
                superseded += 1;
            }
        }
        superseded
    }

    /// Takes a block off that was freed by a durable transaction; whether it was pending.
    pub(crate) fn revoke(&mut self, block: FsBlock, tid: Tid) -> bool {
        // What the freeing transaction itself or a later one logged of the block is its new life.
        let old = self
            .pending
            .get(&block)
            .is_some_and(|p| tid.is_after(p.tid));
        old && self.written(block, None)
    }

    /// Takes a block off that is home, unless a transaction later than `tid` has a newer content; whether it was taken.
    pub(crate) fn written(&mut self, block: FsBlock, tid: Option<Tid>) -> bool {
        let same = |pending: &Pending| tid.is_none_or(|tid| tid == pending.tid);
        if !self.pending.get(&block).is_some_and(same) {
            return false;
        }
        if let Some(old) = self.pending.remove(&block) {
            self.settle(old.tid);
        }
        true
    }

    fn settle(&mut self, tid: Tid) {
        // Tids in the ring have no gaps.
        let index = self
            .live
            .front()
            .map(|oldest| tid.0.wrapping_sub(oldest.tid.0) as usize);
        if let Some(live) = index.and_then(|index| self.live.get_mut(index)) {
            live.pending -= 1;
        }
    }

    /// Takes the oldest transactions off that are home. Answers the blocks of the log that they had: they are free once
    /// the superblock points behind them ([`Ring::release`]).
    pub(crate) fn pop_home(&mut self) -> u32 {
        let mut blocks = 0;
        while let Some(live) = self.live.front().filter(|live| live.pending == 0) {
            blocks += live.blocks;
            self.live.pop_front();
        }
        blocks
    }

    /// Gives blocks of the log back to the head.
    pub(crate) fn release(&mut self, blocks: u32) {
        self.free += blocks;
    }
}
