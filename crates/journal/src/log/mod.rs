//! The on-disk journal: commits are written at its head; checkpoints write blocks home and advance its tail.
//!
//! ```text
//!  commit:      [superblock: not empty] ─► revokes, descriptors and copies ─► flush ─► commit block, FUA
//!  checkpoint:  home, ascending ─► flush ─► superblock: new tail, FUA ─► room
//! ```
//!
//! Invariants:
//! - A transaction is durable exactly when its commit block is; none of its blocks is written home before.
//! - Log blocks are reused only after a superblock that no longer covers them is durable.
//! - One commit at a time (its caller leads the round), one checkpoint at a time; a commit and a checkpoint
//!   may run concurrently.

mod ring;
mod superblock;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use throughline_block::{Disk, Purpose};
use throughline_device::AlignedBuf;
use throughline_extfmt::FsBlock;
use throughline_extfmt::jbd2::JournalFormat;
use throughline_locks::{Condvar, Mutex, Rank};

use crate::buffer::Block;
use crate::cache::Cache;
use crate::clock::SharedClock;
use crate::error::{Error, Result};
use crate::gate::{Limits, Sealed};
use crate::map::LogMap;
use crate::recovery::JournalRun;
use crate::tid::Tid;
use ring::Ring;
use superblock::Superblock;
use write::Layout;

/// The minimum transaction limit, in blocks, for small memory budgets.
const MIN_TRANSACTION_BLOCKS: u64 = 1024;

/// Options of an on-disk journal.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The longest time until a change is committed.
    pub commit_interval: Duration,
    /// The volume has checksums (`metadata_csum`): a journal without checksums gets them too.
    pub checksums: bool,
    /// The volume has 64-bit block numbers.
    pub bit64: bool,
    /// Source of the commit times.
    pub clock: SharedClock,
}

impl Default for LogOptions {
    /// 5 s, no checksums, 32-bit block numbers.
    fn default() -> Self {
        Self {
            commit_interval: Duration::from_secs(5),
            checksums: false,
            bit64: false,
            clock: SharedClock::SYSTEM,
        }
    }
}

/// How full the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogUse {
    /// Blocks of the log.
    pub blocks: u32,
    /// Blocks that hold live transactions.
    pub used_blocks: u32,
    /// Committed blocks that are not home yet.
    pub pending_blocks: u64,
    /// Checkpoints done.
    pub checkpoints: u64,
    /// Blocks of all kinds written to the log.
    pub written_blocks: u64,
}

/// See the head of this file.
pub(crate) struct Log {
    disk: Arc<Disk>,
    map: LogMap,
    format: JournalFormat,
    superblock: Superblock,
    ring: Mutex<Ring>,
    /// Notified when the home writes of a checkpoint end.
    home_writes_ended: Condvar,
    checkpointer: Mutex<Counts>,
    written_blocks: AtomicU64,
    first_tid: Tid,
    /// A checkpoint is due when more bytes than this wait to be written home.
    pending_bytes: u64,
    clock: SharedClock,
    pub(crate) bug: crate::planted::Bug,
}

#[derive(Default)]
struct Counts {
    checkpoints: u64,
    /// Blocks of transactions that are home, which the superblock on disk still covers.
    unreleased: u32,
}

impl Log {
    /// Opens an empty journal and sets it up for writing.
    pub(crate) fn open(
        disk: Arc<Disk>,
        block_bytes: u32,
        fs_blocks: u64,
        runs: &[JournalRun],
        pending_bytes: u64,
        options: &LogOptions,
    ) -> Result<Self> {
        let map = LogMap::new(runs, fs_blocks, block_bytes)?;
        let (superblock, geometry) = Superblock::open(&disk, &map, block_bytes, options)?;
        // As in the kernel, sequence number 0 is not used.
        let first_tid = Tid(geometry.sequence.max(1));
        let ring = Ring::new(geometry.first, geometry.end, first_tid);
        Ok(Self {
            clock: options.clock.clone(),
            disk,
            map,
            format: geometry.format,
            superblock,
            ring: Mutex::ranked(Rank::Ring, ring),
            home_writes_ended: Condvar::new(),
            checkpointer: Mutex::ranked(Rank::Checkpoint, Counts::default()),
            written_blocks: AtomicU64::new(0),
            first_tid,
            pending_bytes,
            bug: crate::planted::Bug::default(),
        })
    }

    /// The number of the first transaction.
    pub(crate) fn first_tid(&self) -> Tid {
        self.first_tid
    }

    /// The transaction size limit for a budget of `dirty_bytes`.
    pub(crate) fn limits(&self, dirty_bytes: u64) -> Limits {
        let len = u64::from(self.ring.lock().len());
        let budget = dirty_bytes / u64::from(self.format.block_bytes);
        Limits {
            // Half of the log leaves room for descriptors and for the previous transaction.
            most: (len / 2 - 8).min(budget.max(MIN_TRANSACTION_BLOCKS)),
            soft: false,
        }
    }

    /// Makes a transaction durable. On an error the transaction is returned.
    pub(crate) fn commit(
        &self,
        cache: &Cache,
        sealed: Sealed,
    ) -> core::result::Result<(), (Sealed, Error)> {
        match self.write(cache, &sealed) {
            Ok(layout) => {
                self.enter(cache, sealed, &layout);
                Ok(())
            }
            Err(error) => Err((sealed, error)),
        }
    }

    fn write(&self, cache: &Cache, sealed: &Sealed) -> Result<Layout> {
        let blocks = write::blocks_needed(&self.format, sealed);
        self.make_room(cache, blocks)?;
        let head = self.ring.lock().head;
        if self.superblock.is_marked_empty() {
            self.superblock
                .point_to(&self.disk, Some(head), sealed.tid)?;
        }
        let layout = Purpose::Journal.during(|| write::write(self, sealed, head))?;
        self.written_blocks
            .fetch_add(u64::from(layout.blocks), Ordering::Relaxed);
        Ok(layout)
    }

    /// Adds a durable transaction to the ring.
    fn enter(&self, cache: &Cache, sealed: Sealed, layout: &Layout) {
        let Sealed {
            tid,
            blocks,
            revokes,
        } = sealed;
        let mut ring = self.ring.lock();
        let mut gone = ring.push(tid, layout.blocks, layout.head, blocks);
        // Freed blocks may be reused for data after this. So wait for checkpoint writes of their old content
        // that are in flight.
        while ring.writing && !revokes.is_empty() {
            self.home_writes_ended.wait(&mut ring);
        }
        for block in revokes {
            gone += u64::from(ring.revoke(block, tid));
        }
        drop(ring);
        cache.unpin(gone);
    }

    /// Checkpoints until the log has room for `blocks`.
    fn make_room(&self, cache: &Cache, blocks: u32) -> Result<()> {
        loop {
            let (free, used) = {
                let ring = self.ring.lock();
                (ring.free, ring.used())
            };
            if free >= blocks {
                return Ok(());
            }
            if used == 0 {
                return Err(Error::Unsupported(format!(
                    "a transaction of {blocks} blocks in a log of {free} blocks"
                )));
            }
            self.checkpoint(cache)?;
        }
    }

    /// Whether a checkpoint is due: the log is more than half full, or many bytes wait to be written home.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let ring = self.ring.lock();
        ring.used() > ring.len() / 2
            || ring.pending.len() as u64 * u64::from(self.format.block_bytes) > self.pending_bytes
    }

    /// Writes all committed blocks home, and frees the log space of transactions that are home.
    pub(crate) fn checkpoint(&self, cache: &Cache) -> Result<()> {
        let mut counts = self.checkpointer.lock();
        let batch: Vec<(Tid, FsBlock, Block)> = {
            let mut ring = self.ring.lock();
            ring.writing = true;
            ring.pending
                .iter()
                .map(|(block, p)| (p.tid, *block, p.sealed.content.clone()))
                .collect()
        };
        let pieces: Vec<(u64, &[u8])> = batch
            .iter()
            .map(|(_, block, content)| (cache.offset_of_resident(*block), &content[..]))
            .collect();
        let result = if pieces.is_empty() {
            Ok(())
        } else {
            Purpose::Metadata.during(|| {
                self.disk
                    .write_batch(&pieces)
                    .and_then(|()| self.disk.flush())
            })
        };
        let mut ring = self.ring.lock();
        ring.writing = false;
        let mut gone = 0;
        if result.is_ok() {
            for (tid, block, _) in &batch {
                gone += u64::from(ring.written(*block, Some(*tid)));
            }
        }
        counts.unreleased += ring.pop_home();
        let (start, tid) = ring.tail();
        drop(ring);
        self.home_writes_ended.notify_all();
        cache.unpin(gone);
        result?;
        if counts.unreleased > 0 {
            self.superblock.point_to(&self.disk, Some(start), tid)?;
            self.ring
                .lock()
                .release(std::mem::take(&mut counts.unreleased));
        }
        counts.checkpoints += 1;
        Ok(())
    }

    /// Runs `change` while no checkpoint writes home.
    pub(crate) fn without_checkpoint_writes<R>(&self, change: impl FnOnce() -> R) -> R {
        let _checkpointer = self.checkpointer.lock();
        change()
    }

    /// Marks the log as empty on disk. All committed blocks must be home, and no commit may follow.
    pub(crate) fn close(&self) -> Result<()> {
        let (_, tid) = self.ring.lock().tail();
        self.superblock.point_to(&self.disk, None, tid)
    }

    /// Records an error (a positive errno) in the journal's superblock.
    pub(crate) fn record_error(&self, errno: u32) -> Result<()> {
        self.superblock.record_error(&self.disk, errno)
    }

    /// The current usage.
    pub(crate) fn usage(&self) -> LogUse {
        let checkpoints = self.checkpointer.lock().checkpoints;
        let ring = self.ring.lock();
        LogUse {
            blocks: ring.len(),
            used_blocks: ring.used(),
            pending_blocks: ring.pending.len() as u64,
            checkpoints,
            written_blocks: self.written_blocks.load(Ordering::Relaxed),
        }
    }

    fn after(&self, at: u32) -> u32 {
        self.ring.lock().after(at)
    }

    fn new_block(&self) -> AlignedBuf {
        let align_bytes = self.disk.limits().memory_align_bytes.max(1) as usize;
        AlignedBuf::zeroed(self.format.block_bytes as usize, align_bytes)
    }
}
