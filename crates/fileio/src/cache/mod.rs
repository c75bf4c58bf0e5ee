//! The page cache of one volume: [`PageCache`], and the cached bytes of one file: [`AddressSpace`].
//!
//! ```text
//!  file bytes    0        2M        4M         …      spans: 2 MiB windows, the unit of look-up and of locking
//!                ├─ span ─┼─ span ──┼─ span ──┤       table: (space, span number) → Arc<Span>, one for the volume
//!                │█ █ ██  │█████████│  █      │       folios: 4 KiB to 2 MiB of memory, naturally aligned in the file
//! ```
//!
//! Invariants:
//! - A byte of a file is in at most one folio. A folio knows of each block of the file in it (an allocation unit,
//!   [`AddressSpace::block_bytes`]) whether it is up to date, dirty, under write-back, being filled, and whether room on the
//!   volume is reserved for it.
//! - In an up-to-date block every byte behind the file's size is zero.
//! - A block is dirty only while [`Throttle`](crate::throttle::Throttle) counts it; it counts until it is on the device
//!   and committed.
//! - Memory under write-back is shared with the device (`Arc<Pages>`) and not changed: a writer takes a copy or waits.
//! - Reclaim takes clean folios only and never writes.
//! - Lock order: the file's own lock (the caller's) → the file's extend lock → policy → span → space's lists and runs. No
//!   mapping call is made, no other span is locked, and nothing waits for the device, with a span locked.

mod activity;
mod backing;
mod blocks;
mod dirty;
mod discard;
mod fill;
mod folio;
mod policy;
mod promise;
mod read;
mod reads;
mod reclaim;
mod runs;
mod space;
mod span;
mod stream;
mod table;
mod waits;
mod write;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_block::Disk;
use throughline_device::PagePool;

use crate::cache::policy::Policy;
use crate::cache::reads::ReadCounting;
use crate::cache::table::Table;
use crate::cache::waits::Waits;
use crate::error::Error;
use crate::readahead::Readahead;
use crate::throttle::{DirtyLimits, Throttle};
use crate::writeback::Writeback;

pub use backing::{Backing, Holes};
pub use reads::ReadCounts;
pub use space::{AddressSpace, Frozen};
pub use write::Accepted;

pub(crate) use activity::Running;
pub(crate) use dirty::DirtyRun;
pub(crate) use fill::{Filling, read_in};
pub(crate) use read::read;
pub(crate) use write::write;

/// The least budget, in bytes: with less than this there is not a folio for each thing that goes on at once.
pub(crate) const MIN_BUDGET_BYTES: u64 = 1 << 20;

/// How a cache is made. The default derives everything from the machine.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Memory for folios, in bytes; `None`: a quarter of what the process may use ([`crate::memory::allowed_bytes`]).
    pub budget_bytes: Option<u64>,
    /// Limits of dirty memory.
    pub dirty: DirtyLimits,
    /// The longest that is read ahead, in bytes (0: nothing); `None`: derived from the device.
    pub readahead_max_bytes: Option<u64>,
}

/// Everything cached of one device, with its budget, its flusher, its throttle and its readers ahead.
pub struct PageCache {
    pub(crate) disk: Arc<Disk>,
    pub(crate) pool: PagePool,
    pub(crate) throttle: Throttle,
    pub(crate) writeback: Writeback,
    pub(crate) readahead: Readahead,
    pub(crate) reads: ReadCounting,
    table: Table,
    policy: Policy,
    waits: Waits,
    last_id: AtomicU64,
}

impl PageCache {
    /// A cache over `disk`. Its threads start when they are needed.
    pub fn new(disk: Arc<Disk>, options: &CacheOptions) -> Arc<PageCache> {
        let budget_bytes = options
            .budget_bytes
            .unwrap_or_else(crate::memory::default_budget_bytes);
        let budget_bytes = budget_bytes.max(MIN_BUDGET_BYTES);
        let throttle = Throttle::new(options.dirty, budget_bytes);
        let writeback = Writeback::new(Arc::clone(&disk));
        throttle.on_need(writeback.bell());
        let pool = PagePool::new(budget_bytes);
        let readahead = Readahead::new(Arc::clone(&disk), pool.clone());
        readahead.set_max_bytes(options.readahead_max_bytes);
        Arc::new(PageCache {
            throttle,
            writeback,
            readahead,
            reads: ReadCounting::default(),
            pool,
            table: Table::new(),
            policy: Policy::new(),
            waits: Waits::new(),
            last_id: AtomicU64::new(0),
            disk,
        })
    }

    /// The device below.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Its dirty memory, limits and bandwidth.
    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    /// Its flusher: what it has done, and when it writes.
    pub fn writeback(&self) -> &Writeback {
        &self.writeback
    }

    /// What buffered reads found so far.
    pub fn read_counts(&self) -> ReadCounts {
        self.reads.sum()
    }

    /// Writes back all that is dirty, of every file.
    ///
    /// # Errors
    /// The first that a write-back met.
    pub fn flush_all(&self) -> crate::Result<()> {
        self.writeback.flush_all()
    }

    /// Ends its threads. What is still dirty is lost: [`PageCache::flush_all`] comes first.
    pub fn close(&self) {
        self.readahead.close();
        self.writeback.close();
    }

    /// As [`PageCache::close`], for good: nothing will ever be written again. Who waits for room gets `error`, and so does who
    /// would have to.
    pub fn give_up(&self, error: Error) {
        self.close();
        self.throttle.stuck(Some(error));
    }

    /// Memory for folios: the budget, in bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.pool.max_bytes()
    }

    /// Memory for folios that is in use, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.pool.used_bytes()
    }

    /// Changes the budget: what is too much is given back as it becomes clean.
    pub fn set_budget_bytes(&self, bytes: u64) {
        let bytes = bytes.max(MIN_BUDGET_BYTES);
        self.pool.set_max_bytes(bytes);
        self.throttle.set_budget_bytes(bytes);
        self.shrink_to_budget();
        self.memory_freed();
    }

    /// A number that nothing else in this cache has; not 0.
    fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }
}
