//! A device that fails as disks do ([`FaultDevice`]): chosen requests, once or from then on, before, during
//! or after the operation.
//!
//! ```text
//!  FaultQueue ── submit ──► Script: counts, logs, decides ──► the device below, or an error
//! ```
//!
//! Invariants:
//! - Requests are counted from 0 in order of submission over all queues. [`FaultDevice::only`] restricts
//!   which ones are counted. The count determines which one fails. Same seed and order: same faults.
//! - A failing request completes once, with `EIO`. Others reach the device below unchanged.
//!
//! And a device that loses power ([`PowerDevice`]): it fails nothing and records everything; its [`Record`]
//! determines what may be on the medium at any moment.

mod cuts;
mod image;
mod power;
mod queue;
mod record;
mod script;

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use throughline_device::{BlockDevice, DeviceInfo, Op, Queue, Request};

pub use image::Image;
pub use power::{PowerDevice, PowerPart};
pub use record::{Change, Cut, Event, Keep, Record, States};

use queue::FaultQueue;
use script::Script;

/// Which requests fail, and how. Requests are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    Never,
    /// Request `n` fails without reaching the device; later ones succeed.
    Once(u64),
    /// Request `n` and all later ones fail without reaching the device, as if it were gone.
    From(u64),
    /// Request `n` is carried out and then reported as failed.
    AfterDone(u64),
    /// Request `n` fails part-way: any subset of a write's logical blocks reaches the device; a read leaves
    /// arbitrary bytes in memory. Other operations fail as with `Once`.
    Torn(u64),
    /// This many of a thousand requests, chosen by the seed, fail without reaching the device.
    Some(u32),
    /// Every request is reported as done and never reaches the device: written data is lost.
    Lost,
}

/// Selects the requests that count.
pub type Filter = dyn Fn(&Request) -> bool + Send + Sync;

/// A submitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Operation.
    pub op: Op,
    /// Offset in bytes.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Whether it was requested to survive a power loss.
    pub fua: bool,
    /// Whether it was failed by the fault.
    pub failed: bool,
}

/// A device that forwards requests to another and fails those selected by a [`Fault`].
pub struct FaultDevice {
    inner: Arc<dyn BlockDevice>,
    script: Arc<Mutex<Script>>,
}

impl FaultDevice {
    /// Wraps `inner` with a `fault`.
    pub fn new(inner: Arc<dyn BlockDevice>, fault: Fault) -> FaultDevice {
        FaultDevice {
            inner,
            script: Arc::new(Mutex::new(Script::new(fault))),
        }
    }

    /// Wraps `inner` without faults, to count requests.
    pub fn counting(inner: Arc<dyn BlockDevice>) -> FaultDevice {
        FaultDevice::new(inner, Fault::Never)
    }

    /// Counts and fails only these operations.
    pub fn only(self, ops: &[Op]) -> FaultDevice {
        self.script.lock().only = Some(ops.to_vec());
        self
    }

    /// Counts and fails only requests for which `filter` returns true.
    pub fn only_where(
        self,
        filter: impl Fn(&Request) -> bool + Send + Sync + 'static,
    ) -> FaultDevice {
        self.script.lock().filter = Some(Arc::new(filter));
        self
    }

    /// Sets the seed for torn requests; the default is 0.
    pub fn seeded(self, seed: u64) -> FaultDevice {
        self.script.lock().seed = seed;
        self
    }

    /// Logs every request, of all operations.
    pub fn logged(self) -> FaultDevice {
        self.script.lock().log = Some(Vec::new());
        self
    }

    /// Changes the fault from now on; counting continues.
    pub fn set_fault(&self, fault: Fault) {
        self.script.lock().fault = fault;
    }

    /// Number of requests counted so far.
    pub fn requests(&self) -> u64 {
        self.script.lock().requests
    }

    /// Number of failed requests.
    pub fn failed(&self) -> u64 {
        self.script.lock().failed
    }

    /// Takes the log so far, in order of submission; empty without [`logged`](FaultDevice::logged).
    pub fn take_log(&self) -> Vec<Logged> {
        self.script
            .lock()
            .log
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
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
        let block_bytes = self.info().limits.logical_block_bytes as usize;
        let align_bytes = self.info().limits.memory_align_bytes as usize;
        let queues = (self.inner.open_queue()?, self.inner.open_queue()?);
        let script = Arc::clone(&self.script);
        Ok(Box::new(FaultQueue::new(
            queues.0,
            queues.1,
            block_bytes,
            align_bytes,
            script,
        )))
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.inner.allocate(offset_bytes, len_bytes)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.inner.set_len(bytes)
    }
}
