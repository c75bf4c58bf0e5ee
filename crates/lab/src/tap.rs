//! A device whose requests are observed on their way to another one, or answered without it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use throughline_device::{BlockDevice, Completion, DeviceInfo, Op, Queue, Request};

/// What is done with the requests of all queues.
pub(crate) trait Tap: Send + Sync + 'static {
    /// A request was submitted. Returns whether it succeeds at once, without the device.
    fn answers(&self, op: Op) -> bool;

    /// The requests so far were handed over to the device.
    fn handed_over(&self) {}
}

/// From when it is set, reads succeed without moving data, so that a file in an image can be used to measure
/// the path alone. Writes still go to the device.
#[derive(Default)]
pub(crate) struct Hollow(pub(crate) AtomicBool);

impl Tap for Hollow {
    fn answers(&self, op: Op) -> bool {
        op == Op::Read && self.0.load(Ordering::Relaxed)
    }
}

/// Counts since the last [`Probe::reset`], for single-threaded experiments. The same probe is below every
/// variant, ours and naive, so all are timed in the same way.
#[derive(Debug)]
pub(crate) struct Probe {
    epoch: Instant,
    /// When the first request had been submitted, in nanoseconds since the epoch; 0 if there is none yet.
    first_ns: AtomicU64,
    requests: AtomicU64,
}

impl Probe {
    pub(crate) fn new() -> Probe {
        Probe {
            epoch: Instant::now(),
            first_ns: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        }
    }

    /// Resets the counts. Returns the current time, as the start of a call, in nanoseconds.
    pub(crate) fn reset(&self) -> u64 {
        self.first_ns.store(0, Ordering::Relaxed);
        self.requests.store(0, Ordering::Relaxed);
        self.now_ns()
    }

    /// Microseconds from `start_ns` until the first request was submitted.
    pub(crate) fn first_submit_us(&self, start_ns: u64) -> f64 {
        let first_ns = self.first_ns.load(Ordering::Relaxed);
        first_ns.saturating_sub(start_ns) as f64 / 1000.0
    }

    /// Requests since the reset.
    pub(crate) fn requests(&self) -> f64 {
        self.requests.load(Ordering::Relaxed) as f64
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Tap for Probe {
    fn answers(&self, _op: Op) -> bool {
        self.requests.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn handed_over(&self) {
        if self.first_ns.load(Ordering::Relaxed) == 0 {
            self.first_ns.store(self.now_ns().max(1), Ordering::Relaxed);
        }
    }
}

/// A device with a tap.
pub(crate) struct Tapped<T> {
    inner: Arc<dyn BlockDevice>,
    info: DeviceInfo,
    pub(crate) tap: Arc<T>,
}

impl<T: Tap> Tapped<T> {
    /// Wraps `inner`, with queues at most `depth` deep.
    pub(crate) fn new(inner: Arc<dyn BlockDevice>, tap: T, depth: Option<u32>) -> Tapped<T> {
        let mut info = inner.info().clone();
        let limits = &mut info.limits;
        limits.queue_depth = depth.unwrap_or(u32::MAX).min(limits.queue_depth).max(1);
        Tapped {
            inner,
            info,
            tap: Arc::new(tap),
        }
    }
}

impl<T: Tap> BlockDevice for Tapped<T> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.inner.set_len(bytes)
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(TappedQueue {
            inner: self.inner.open_queue()?,
            depth: self.info.limits.queue_depth as usize,
            tap: Arc::clone(&self.tap),
            fresh: false,
            answered: Vec::new(),
        }))
    }
}

struct TappedQueue<T> {
    inner: Box<dyn Queue>,
    depth: usize,
    tap: Arc<T>,
    /// Whether there are requests that were not handed over.
    fresh: bool,
    /// Requests that the tap has answered.
    answered: Vec<Completion>,
}

impl<T: Tap> Queue for TappedQueue<T> {
    fn submit(&mut self, request: Request) {
        if self.tap.answers(request.op()) {
            let result = Ok(());
            self.answered.push(Completion { request, result });
        } else {
            self.fresh = true;
            self.inner.submit(request);
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
        if std::mem::take(&mut self.fresh) {
            self.tap.handed_over();
        }
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        if self.fresh {
            self.kick();
        }
        let answered = self.answered.len();
        done.append(&mut self.answered);
        if self.inner.in_flight() > 0 {
            self.inner.reap(wait_for.saturating_sub(answered), done);
        }
    }

    fn in_flight(&self) -> usize {
        self.answered.len() + self.inner.in_flight()
    }

    fn depth(&self) -> usize {
        self.inner.depth().min(self.depth)
    }
}
