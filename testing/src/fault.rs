//! A device whose n-th request fails.
//!
//! Invariants:
//! - Every request is counted, in the order of submission over all queues; the count says which one fails.
//! - A failed request either never reached the device below or was carried out whole, as [`Fault`] says; the
//!   submitter sees an error in both cases.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_device::{BlockDevice, Completion, DeviceInfo, Op, Queue, Request};

/// Which requests fail, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Request number `n` (from 0) fails without reaching the device; the next ones work.
    Once(u64),
    /// Request number `n` and all later ones fail without reaching the device: it is gone.
    From(u64),
    /// Request number `n` is carried out, and then reported as failed.
    AfterDone(u64),
}

impl Fault {
    /// Whether request number `n` fails.
    fn hits(self, n: u64) -> bool {
        match self {
            Self::Once(at) | Self::AfterDone(at) => n == at,
            Self::From(at) => n >= at,
        }
    }
}

/// A device that passes requests on to another, and fails those that [`Fault`] names. See the module's head.
pub struct FaultDevice {
    inner: Arc<dyn BlockDevice>,
    fault: Fault,
    counts: Arc<Counts>,
}

/// What went through a [`FaultDevice`].
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    failed: AtomicU64,
}

impl FaultDevice {
    /// `inner` with a `fault`.
    pub fn new(inner: Arc<dyn BlockDevice>, fault: Fault) -> Self {
        Self {
            inner,
            fault,
            counts: Arc::default(),
        }
    }

    /// `inner` that never fails, to count the requests of a script.
    pub fn counting(inner: Arc<dyn BlockDevice>) -> Self {
        Self::new(inner, Fault::Once(u64::MAX))
    }

    /// How many requests came so far.
    pub fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::SeqCst)
    }

    /// How many of them failed.
    pub fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::SeqCst)
    }
}

impl BlockDevice for FaultDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(FaultQueue {
            inner: self.inner.open_queue()?,
            fault: self.fault,
            counts: Arc::clone(&self.counts),
            refused: Vec::new(),
            to_fail: Vec::new(),
        }))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.inner.set_len(bytes)
    }
}

struct FaultQueue {
    inner: Box<dyn Queue>,
    fault: Fault,
    counts: Arc<Counts>,
    /// Failed without reaching the device, to be reaped.
    refused: Vec<Completion>,
    /// On the device, to be reported as failed: operation, offset, length.
    to_fail: Vec<(Op, u64, u64)>,
}

fn injected() -> io::Error {
    io::Error::other("injected fault")
}

impl Queue for FaultQueue {
    fn submit(&mut self, request: Request) {
        let n = self.counts.requests.fetch_add(1, Ordering::SeqCst);
        if !self.fault.hits(n) {
            return self.inner.submit(request);
        }
        self.counts.failed.fetch_add(1, Ordering::SeqCst);
        if let Fault::AfterDone(_) = self.fault {
            self.to_fail
                .push((request.op(), request.offset_bytes(), request.len_bytes()));
            self.inner.submit(request);
        } else {
            self.refused.push(Completion {
                request,
                result: Err(injected()),
            });
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let wait_for = wait_for.saturating_sub(self.refused.len());
        done.append(&mut self.refused);
        let new = done.len();
        self.inner.reap(wait_for, done);
        for completion in done.iter_mut().skip(new) {
            let request = &completion.request;
            let what = (request.op(), request.offset_bytes(), request.len_bytes());
            if let Some(at) = self.to_fail.iter().position(|failing| *failing == what) {
                self.to_fail.swap_remove(at);
                completion.result = Err(injected());
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.refused.len()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }
}
