//! The page cache of one volume: [`PageCache`], and the cached bytes of one file: [`AddressSpace`].
//!
//! ```text
//!  file bytes    0        2M        4M         …      spans: 2 MiB, the unit of lookup and locking
//!                ├─ span ─┼─ span ──┼─ span ──┤       table: (space, span number) → Arc<Span>, per volume
//!                │█ █ ██  │█████████│  █      │       folios: 4 KiB to 2 MiB, naturally aligned in the file
//! ```
//!
//! Invariants:
//! - Each byte of a file is in at most one folio. A folio records for each block in it (an allocation unit of
//!   the file, [`AddressSpace::block_bytes`]) whether it is up to date, dirty, under write-back, being
//!   filled, and whether space on the volume is reserved for it.
//! - In an up-to-date block, all bytes past the end of the file are zero.
//! - [`Throttle`](crate::throttle::Throttle) counts every dirty block until it is on the device and
//!   committed.
//! - Memory under write-back is shared with the device (`Arc<Pages>`) and does not change: a writer copies it
//!   or waits.
//! - Reclaim drops clean folios only and never writes.
//! - Lock order: the file's own lock (the caller's) → the file's extend lock → policy → span → the space's
//!   lists and runs. With a span locked, no code calls the mapping, locks another span, or waits for the
//!   device.

mod activity;
mod backing;
mod blocks;
mod dirty;
mod discard;
mod fill;
mod folio;
mod lend;
mod policy;
mod promise;
mod read;
mod reads;
mod reclaim;
mod refused;
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
pub use lend::{cached_pieces, lend_cached};
pub use reads::ReadCounts;
pub use space::{AddressSpace, Frozen};
pub use write::{Accepted, Stored};

pub(crate) use activity::Running;
pub(crate) use dirty::DirtyRun;
pub(crate) use fill::{Filling, read_in};
pub(crate) use read::read;
pub use refused::Refused;
pub(crate) use refused::{lose, promote};
pub(crate) use stream::Writing;
pub(crate) use write::{write, write_back};

/// The smallest budget, in bytes. Less could not hold one folio for each concurrent operation.
pub(crate) const MIN_BUDGET_BYTES: u64 = 1 << 20;

/// Options of a cache. The defaults are derived from the machine.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Memory for folios, in bytes; `None`: a quarter of what the process may use
    /// ([`crate::memory::allowed_bytes`]).
    pub budget_bytes: Option<u64>,
    /// Limits of dirty memory.
    pub dirty: DirtyLimits,
    /// Maximum readahead window, in bytes (0: no readahead); `None`: derived from the device.
    pub readahead_max_bytes: Option<u64>,
}

/// The cached pages of all files of one device, with the budget, flusher, throttle and readahead threads.
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
    /// Creates a cache over `disk`. Threads start on first use.
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

    /// The device.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// The throttle: dirty memory, limits and bandwidth.
    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    /// The flusher: its counters and settings.
    pub fn writeback(&self) -> &Writeback {
        &self.writeback
    }

    /// Hits and misses of buffered reads.
    pub fn read_counts(&self) -> ReadCounts {
        self.reads.sum()
    }

    /// Writes back all dirty blocks of all files.
    ///
    /// # Errors
    /// The first error that write-back met.
    pub fn flush_all(&self) -> crate::Result<()> {
        self.writeback.flush_all()
    }

    /// Ends the cache's threads. Dirty data that remains is lost: call [`PageCache::flush_all`] first.
    pub fn close(&self) {
        self.readahead.close();
        self.writeback.close();
    }

    /// As [`PageCache::close`], when nothing can ever be written again: threads that wait for room, and later
    /// calls that would wait, get `error`.
    pub fn give_up(&self, error: Error) {
        self.close();
        self.throttle.stuck(Some(error));
    }

    /// The budget for folios, in bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.pool.max_bytes()
    }

    /// Memory used by folios, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.pool.used_bytes()
    }

    /// Changes the budget. Memory above a smaller budget is released as it becomes clean.
    pub fn set_budget_bytes(&self, bytes: u64) {
        let bytes = bytes.max(MIN_BUDGET_BYTES);
        self.pool.set_max_bytes(bytes);
        self.throttle.set_budget_bytes(bytes);
        self.shrink_to_budget();
        self.memory_freed();
    }

    /// A number that is unique in this cache; not 0.
    fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }
}
