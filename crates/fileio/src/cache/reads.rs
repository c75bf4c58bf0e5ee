//! Counters of cache hits and misses. Each thread has its own cache line, so a hit writes no line that
//! another thread writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use thread_local::ThreadLocal;
use throughline_locks::Mutex;

/// Counters of buffered reads since the cache was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadCounts {
    /// Calls that found all their bytes cached.
    pub hits: u64,
    /// Bytes that were cached, by earlier reads or readahead.
    pub hit_bytes: u64,
    /// Calls for which at least one byte was missing.
    pub misses: u64,
    /// Bytes that readers had to read from the device.
    pub miss_bytes: u64,
}

/// The counters of one thread.
#[derive(Default)]
struct Cells {
    hits: AtomicU64,
    hit_bytes: AtomicU64,
    misses: AtomicU64,
    miss_bytes: AtomicU64,
}

/// See the module. Cells of ended threads are reused by new ones.
#[derive(Default)]
pub(crate) struct ReadCounting {
    by_thread: ThreadLocal<Arc<CachePadded<Cells>>>,
    /// Locked when a thread counts for the first time, and for sums.
    all: Mutex<Vec<Arc<CachePadded<Cells>>>>,
}

/// Adds without an atomic read-modify-write: only one thread writes the cell.
fn add(cell: &AtomicU64, amount: u64) {
    let sum = cell.load(Ordering::Relaxed).wrapping_add(amount);
    cell.store(sum, Ordering::Relaxed);
}

impl ReadCounting {
    fn cells(&self) -> &Cells {
        self.by_thread.get_or(|| {
            let cells = Arc::default();
            self.all.lock().push(Arc::clone(&cells));
            cells
        })
    }

    /// Counts a call that found all its bytes.
    pub(crate) fn hit(&self, bytes: u64) {
        let cells = self.cells();
        add(&cells.hits, 1);
        add(&cells.hit_bytes, bytes);
    }

    /// Counts a call that read `bytes` bytes, of which `missing` were not cached.
    pub(crate) fn read(&self, bytes: u64, missing: u64) {
        if missing == 0 {
            return self.hit(bytes);
        }
        let cells = self.cells();
        add(&cells.misses, 1);
        add(&cells.miss_bytes, missing);
        add(&cells.hit_bytes, bytes.saturating_sub(missing));
    }

    /// The sum over all threads.
    pub(crate) fn sum(&self) -> ReadCounts {
        let mut sum = ReadCounts::default();
        for cells in self.all.lock().iter() {
            sum.hits += cells.hits.load(Ordering::Relaxed);
            sum.hit_bytes += cells.hit_bytes.load(Ordering::Relaxed);
            sum.misses += cells.misses.load(Ordering::Relaxed);
            sum.miss_bytes += cells.miss_bytes.load(Ordering::Relaxed);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed() {
        let counting = ReadCounting::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counting.hit(10);
                        counting.read(10, 0);
                        counting.read(10, 4);
                    }
                });
            }
        });
        let counts = counting.sum();
        assert_eq!((counts.hits, counts.hit_bytes), (8000, 104_000));
        assert_eq!((counts.misses, counts.miss_bytes), (4000, 16_000));
    }
}
