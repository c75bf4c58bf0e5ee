//! A device that fails as disks do: the n-th request, once or for good, not at all, in part, or after all.
//!
//! ```text
//!  FaultQueue ── submit ──► Script: counts, logs, decides ──► the device below, or an error
//! ```
//!
//! Invariants:
//! - Requests are counted from 0 in the order of submission over all queues, those alone that
//!   [`FaultDevice::only`] lets through; the count says which one fails. Same seed, same order: same faults.
//! - A request that fails completes with `EIO`, once. Others reach the device below unchanged.
//!
//! And one that loses its power ([`PowerDevice`]): it fails nothing, remembers everything, and its [`Record`] says what
//! may be on the medium at any moment.

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
pub use power::PowerDevice;
pub use record::{Change, Cut, Event, Keep, Record, States};

use queue::FaultQueue;
use script::Script;

/// Which requests fail, and how. Numbers count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    Never,
    /// Request number `n` fails without reaching the device; the next ones work.
    Once(u64),
    /// Request number `n` and all later ones fail without reaching the device: it is gone.
    From(u64),
    /// Request number `n` is carried out, and then reported as failed.
    AfterDone(u64),
    /// Request number `n` fails half-way: of a write, any of its logical blocks reach the device and any do
    /// not; a read leaves junk in the memory. Other operations fail as with `Once`.
    Torn(u64),
    /// So many in a thousand requests fail without reaching the device, by the seed.
    Some(u32),
    /// Every request is reported as done and never reaches the device: what is written is thrown away.
    Lost,
}

/// Which requests count.
pub type Filter = dyn Fn(&Request) -> bool + Send + Sync;

/// One request as it was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// What it asked for.
    pub op: Op,
    /// Where on the device it began.
    pub offset_bytes: u64,
    /// How many bytes it covered.
    pub len_bytes: u64,
    /// Whether it was to survive a power loss.
    pub fua: bool,
    /// Whether it was made to fail.
    pub failed: bool,
}

/// A device that passes requests on to another, and fails those that a [`Fault`] names.
pub struct FaultDevice {
    inner: Arc<dyn BlockDevice>,
    script: Arc<Mutex<Script>>,
}

impl FaultDevice {
    /// `inner` with a `fault`.
    pub fn new(inner: Arc<dyn BlockDevice>, fault: Fault) -> FaultDevice {
        FaultDevice {
            inner,
            script: Arc::new(Mutex::new(Script::new(fault))),
        }
    }

    /// `inner` that never fails, to count the requests of a script.
    pub fn counting(inner: Arc<dyn BlockDevice>) -> FaultDevice {
        FaultDevice::new(inner, Fault::Never)
    }

    /// Counts and fails these operations alone.
    pub fn only(self, ops: &[Op]) -> FaultDevice {
        self.script.lock().only = Some(ops.to_vec());
        self
    }

    /// Counts and fails those requests alone for which `filter` says so.
    pub fn only_where(
        self,
        filter: impl Fn(&Request) -> bool + Send + Sync + 'static,
    ) -> FaultDevice {
        self.script.lock().filter = Some(Arc::new(filter));
        self
    }

    /// What decides where a torn request tears; 0 if not said.
    pub fn seeded(self, seed: u64) -> FaultDevice {
        self.script.lock().seed = seed;
        self
    }

    /// Keeps a log of every request, of all operations.
    pub fn logged(self) -> FaultDevice {
        self.script.lock().log = Some(Vec::new());
        self
    }

    /// From now on fails as `fault` says; the count goes on.
    pub fn set_fault(&self, fault: Fault) {
        self.script.lock().fault = fault;
    }

    /// How many requests came so far.
    pub fn requests(&self) -> u64 {
        self.script.lock().requests
    }

    /// How many of them failed.
    pub fn failed(&self) -> u64 {
        self.script.lock().failed
    }

    /// Takes the log so far, in the order of submission; empty without [`logged`](FaultDevice::logged).
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
