//! A device with a probe. It records when the first request of a call was submitted, and how many requests
//! there were.
//!
//! The same probe is below every variant, ours and naive, so all are timed in the same way.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use throughline_device::{BlockDevice, Completion, DeviceInfo, Queue, Request};

/// Counts since the last [`Probe::reset`]. All queues share them, so it is for single-threaded experiments.
#[derive(Debug)]
pub(crate) struct Probe {
    epoch: Instant,
    /// When the first request had been submitted, in nanoseconds since the epoch; 0 if there is none yet.
    first_ns: AtomicU64,
    requests: AtomicU64,
}

impl Probe {
    fn new() -> Probe {
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
        self.first_ns
            .load(Ordering::Relaxed)
            .saturating_sub(start_ns) as f64
            / 1000.0
    }

    /// Requests since the reset.
    pub(crate) fn requests(&self) -> f64 {
        self.requests.load(Ordering::Relaxed) as f64
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn handed_over(&self) {
        if self.first_ns.load(Ordering::Relaxed) == 0 && self.requests.load(Ordering::Relaxed) > 0 {
            self.first_ns.store(self.now_ns().max(1), Ordering::Relaxed);
        }
    }
}

/// Another device with a probe, and with queues of a limited depth.
pub(crate) struct ProbeDevice {
    inner: Arc<dyn BlockDevice>,
    info: DeviceInfo,
    probe: Arc<Probe>,
}

impl ProbeDevice {
    /// Wraps `inner`, with queues at most `depth` deep.
    pub(crate) fn new(inner: Arc<dyn BlockDevice>, depth: Option<u32>) -> ProbeDevice {
        let mut info = inner.info().clone();
        info.limits.queue_depth = depth
            .map_or(info.limits.queue_depth, |d| d.min(info.limits.queue_depth))
            .max(1);
        ProbeDevice {
            inner,
            info,
            probe: Arc::new(Probe::new()),
        }
    }

    /// The probe.
    pub(crate) fn probe(&self) -> Arc<Probe> {
        Arc::clone(&self.probe)
    }
}

impl BlockDevice for ProbeDevice {
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
        let inner = self.inner.open_queue()?;
        Ok(Box::new(ProbeQueue {
            inner,
            depth: self.info.limits.queue_depth as usize,
            probe: self.probe(),
        }))
    }
}

struct ProbeQueue {
    inner: Box<dyn Queue>,
    depth: usize,
    probe: Arc<Probe>,
}

impl Queue for ProbeQueue {
    fn submit(&mut self, request: Request) {
        self.probe.requests.fetch_add(1, Ordering::Relaxed);
        self.inner.submit(request);
    }

    fn kick(&mut self) {
        self.inner.kick();
        self.probe.handed_over();
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        if self.probe.first_ns.load(Ordering::Relaxed) == 0 {
            self.kick();
        }
        self.inner.reap(wait_for, done);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn depth(&self) -> usize {
        self.inner.depth().min(self.depth)
    }
}
