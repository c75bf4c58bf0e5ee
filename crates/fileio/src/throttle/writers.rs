//! The writers of a device: each thread's account, on its own cache line.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use thread_local::ThreadLocal;
use throughline_locks::Mutex;

use crate::throttle::pacer::Pacer;

/// The account of one thread.
pub(crate) struct Writer {
    pub(crate) pacer: Cell<Pacer>,
    /// Written only by its own thread.
    calls: Arc<CachePadded<AtomicU64>>,
}

impl Writer {
    /// Counts a balance call.
    pub(crate) fn count(&self) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls + 1, Ordering::Relaxed);
    }
}

/// See the module. Accounts of ended threads are reused by new ones.
#[derive(Default)]
pub(crate) struct Writers {
    by_thread: ThreadLocal<CachePadded<Writer>>,
    /// Locked when a thread writes for the first time, and when calls are summed.
    calls: Mutex<Vec<Arc<CachePadded<AtomicU64>>>>,
}

impl Writers {
    /// The calling thread's account.
    pub(crate) fn this_thread(&self) -> &Writer {
        self.by_thread.get_or(|| {
            let calls = Arc::default();
            self.calls.lock().push(Arc::clone(&calls));
            CachePadded::new(Writer {
                pacer: Cell::default(),
                calls,
            })
        })
    }

    /// Total balance calls of all threads.
    pub(crate) fn calls(&self) -> u64 {
        let calls = self.calls.lock();
        calls.iter().map(|one| one.load(Ordering::Relaxed)).sum()
    }
}
