//! Bounds: work that takes too long or too much memory ends the process and prints the image.

use std::collections::HashMap;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// An image takes milliseconds. Not a measurement: a limit for images that would take forever.
const DEADLINE: Duration = Duration::from_secs(120);
/// Limit of resident memory above the initial amount.
const MAX_RESIDENT_KIB: u64 = 256 << 10;
/// Limit of address space, including untouched allocations, stacks and the allocator's arenas.
const MAX_ADDRESSES_KIB: u64 = 2 << 20;

/// Two threads, as many as the reference machine has.
const THREADS: usize = 2;

/// The bounds of all work on images. The base images are made before.
pub(crate) static WATCH: LazyLock<Watch> = LazyLock::new(|| {
    crate::hostile::make_bases();
    crate::damaged_journal::make_bases();
    Watch::start()
});

/// Does `work` on several threads. One test at a time: the bounds apply to all threads together.
pub(crate) fn over_threads(work: impl Fn() + Sync) {
    static TURN: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _turn = TURN.lock();
    WATCH.begin();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(&work);
        }
    });
}

type Running = Arc<Mutex<HashMap<ThreadId, (String, Instant)>>>;

/// Watches all threads that work on images.
pub(crate) struct Watch {
    running: Running,
    slowest: Mutex<(Duration, String)>,
    resident_kib: AtomicU64,
    addresses_kib: u64,
}

impl Watch {
    /// Starts watching; a panic prints the image being worked on.
    fn start() -> Watch {
        let running = Running::default();
        let (all, shown) = (Arc::clone(&running), Arc::clone(&running));
        std::thread::spawn(move || {
            loop {
                std::thread::park_timeout(Duration::from_secs(1));
                for (what, since) in all.lock().unwrap_or_else(PoisonError::into_inner).values() {
                    if since.elapsed() > DEADLINE {
                        eprintln!("hostile: {what} does not end");
                        std::process::abort();
                    }
                }
            }
        });
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let running = shown.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((what, _)) = running.get(&std::thread::current().id()) {
                eprintln!("hostile: a panic at {what}");
            }
            drop(running);
            before(info);
        }));
        // Sets the peak to what is resident now: proc_pid_clear_refs(5). Otherwise an earlier peak of the
        // test's own would hide one of the work.
        std::fs::write("/proc/self/clear_refs", "5").expect("the peak can be reset");
        Watch {
            running,
            slowest: Mutex::default(),
            resident_kib: AtomicU64::new(status_kib("VmHWM:")),
            addresses_kib: status_kib("VmPeak:"),
        }
    }

    /// A test begins: what the allocator keeps of the ones before is not memory of its images.
    fn begin(&self) {
        std::fs::write("/proc/self/clear_refs", "5").expect("the peak can be reset");
        self.resident_kib
            .store(status_kib("VmHWM:"), Ordering::SeqCst);
    }

    /// Runs `work` on the image `what`. Returns whether it ended without a panic.
    pub(crate) fn over<R>(&self, what: &str, work: impl FnOnce() -> R) -> Option<R> {
        let me = std::thread::current().id();
        let lock = || self.running.lock().unwrap_or_else(PoisonError::into_inner);
        lock().insert(me, (what.to_owned(), Instant::now()));
        let result = panic::catch_unwind(panic::AssertUnwindSafe(work)).ok();
        let resident =
            status_kib("VmHWM:").saturating_sub(self.resident_kib.load(Ordering::SeqCst));
        let addresses = status_kib("VmPeak:").saturating_sub(self.addresses_kib);
        // Not under the lock: the hook takes it too.
        let running = format!("{:?}", lock());
        assert!(
            resident < MAX_RESIDENT_KIB && addresses < MAX_ADDRESSES_KIB,
            "{resident} KiB of memory and {addresses} KiB of addresses more, at one of {running}",
        );
        let ended = lock().remove(&me);
        let mut slowest = self.slowest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((what, since)) = ended
            && since.elapsed() > slowest.0
        {
            *slowest = (since.elapsed(), what);
        }
        result
    }

    /// The image that took longest, for finding slow ones.
    pub(crate) fn slowest(&self) -> (Duration, String) {
        self.slowest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A value from `/proc/self/status`; 0 if missing.
fn status_kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
