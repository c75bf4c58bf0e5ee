//! The state of a page cache: [`CacheState`].

use throughline_fileio::PageCache;
use throughline_fileio::throttle::ThrottleState;
use throughline_fileio::writeback::WritebackCounts;

/// A snapshot of a page cache: its memory, its limits, and what it has done since it was created.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheState {
    /// Memory that the cache may use, in bytes.
    pub budget_bytes: u64,
    /// Memory that holds file data, dirty data included, in bytes.
    pub cached_bytes: u64,
    /// Dirty memory: amount, limits, the device's bandwidth, pauses of writers.
    pub throttle: ThrottleState,
    /// What the flusher has done.
    pub writeback: WritebackCounts,
    /// Largest readahead window, in bytes.
    pub readahead_max_bytes: u64,
}

impl CacheState {
    pub(crate) fn of(cache: &PageCache) -> CacheState {
        CacheState {
            budget_bytes: cache.budget_bytes(),
            cached_bytes: cache.used_bytes(),
            throttle: cache.throttle().state(),
            writeback: cache.writeback().counts(),
            readahead_max_bytes: cache.readahead().max_bytes(),
        }
    }
}
