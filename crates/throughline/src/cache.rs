//! The state of a page cache: [`CacheState`].

use throughline_fileio::PageCache;
use throughline_fileio::throttle::ThrottleState;
use throughline_fileio::writeback::WritebackCounts;

/// A page cache at one moment: its memory, its limits, and what its parts have done since it was made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheState {
    /// Memory that it may take, in bytes.
    pub budget_bytes: u64,
    /// Memory that holds bytes of files, dirty ones among them.
    pub cached_bytes: u64,
    /// Dirty memory: how much there is and may be, the device's bandwidth, pauses of writers.
    pub throttle: ThrottleState,
    /// What the flusher has done.
    pub writeback: WritebackCounts,
    /// The longest that is read ahead, in bytes.
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
