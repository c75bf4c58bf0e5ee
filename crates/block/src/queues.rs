//! The device queues of each thread.
//!
//! A thread submits on queues that no other thread uses, so submitting takes no lock and writes no cache line that
//! another thread writes. A thread may need a second queue while its first is in use (a metadata read while a data
//! pipeline is open), so each thread keeps a *stack* of idle queues: a use takes the top one away, or opens a new one
//! when the stack is empty, and puts it back when done. A thread thus owns as many queues as its deepest nesting.
//! Stacks and slots are padded: those of two threads may lie side by side.
//!
//! A device that was cut off ([`Queues::cut`]) gives no queue any more. Who takes a queue says so first, in a line of its
//! own, and looks then whether the device is cut off; who cuts says so first and looks then who has one. So one of the
//! two sees the other.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use thread_local::ThreadLocal;
use throughline_device::{BlockDevice, Done, Lane, Op, Queue};

use crate::counters::{Counters, QueueCounters};
use crate::error::{Error, Result};
use crate::meter::Meter;

/// One queue and what is counted on it.
pub(crate) struct Slot {
    pub(crate) queue: Box<dyn Queue>,
    pub(crate) counters: Arc<QueueCounters>,
    /// Memory for completions, kept so that a call allocates none.
    pub(crate) done: Vec<Done>,
    pub(crate) meter: Meter,
}

/// Where a slot stays while it goes from the stack to its use and back.
type Place = Box<CachePadded<Slot>>;

type Stack = CachePadded<RefCell<Vec<Place>>>;

/// All queues of one device.
pub(crate) struct Queues {
    device: Arc<dyn BlockDevice>,
    idle: ThreadLocal<Stack>,
    /// The counters of every queue ever opened, to be summed on read. Locked when a queue opens and when counters are
    /// read, never per I/O.
    counters: Mutex<Vec<Arc<QueueCounters>>>,
    is_cut: CachePadded<AtomicBool>,
}

impl Queues {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device,
            idle: ThreadLocal::new(),
            counters: Mutex::new(Vec::new()),
            is_cut: CachePadded::new(AtomicBool::new(false)),
        }
    }

    /// No queue from now on. Returns when none is in use that was taken before.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        // Seldom, and the device has few requests to end: not worth a way to be woken.
        while self.counters.lock().iter().any(|one| one.is_leased()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether [`Queues::cut`] was called.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    /// What everybody is told who wants something of a device that was cut off.
    pub(crate) fn cut_off(op: Op, offset: u64, len: u64) -> Error {
        let source = io::Error::other("the device was cut off: the volume was taken down");
        Error::device(op, offset, len, source)
    }

    /// A queue for this thread's use until the lease is dropped.
    pub(crate) fn lease(&self) -> Result<Lease<'_>> {
        let idle = self.idle.get_or_default();
        let top = idle.borrow_mut().pop();
        let slot = match top {
            Some(slot) => slot,
            None => self.open()?,
        };
        let lease = Lease {
            idle,
            slot: Some(slot),
        };
        if let Some(slot) = &lease.slot {
            slot.counters.set_leased(true);
        }
        if self.is_cut() {
            return Err(Self::cut_off(Op::Read, 0, 0));
        }
        Ok(lease)
    }

    fn open(&self) -> Result<Place> {
        let queue = self
            .device
            .open_queue()
            .map_err(|source| Error::device(Op::Read, 0, 0, source))?;
        let counters = self.new_counters();
        Ok(Box::new(CachePadded::new(Slot {
            queue,
            counters,
            done: Vec::new(),
            meter: Meter::new(&self.device.info().limits),
        })))
    }

    /// A queue for requests that own their memory, in no thread's stack, and its counters.
    pub(crate) fn open_lane(&self) -> Result<(Lane, Arc<QueueCounters>)> {
        let failed = |source| Error::device(Op::Write, 0, 0, source);
        let lane = Lane::open(&*self.device).map_err(failed)?;
        Ok((lane, self.new_counters()))
    }

    fn new_counters(&self) -> Arc<QueueCounters> {
        let counters = Arc::new(QueueCounters::default());
        self.counters.lock().push(Arc::clone(&counters));
        counters
    }

    /// Bios on their way, of all queues.
    pub(crate) fn in_flight(&self) -> u64 {
        self.counters.lock().iter().map(|one| one.in_flight()).sum()
    }

    /// What all queues have counted so far.
    pub(crate) fn counters(&self) -> Counters {
        self.counters
            .lock()
            .iter()
            .fold(Counters::default(), |sum, one| sum.plus(&one.read()))
    }
}

/// A queue in use by this thread; goes back on the thread's stack when dropped.
pub(crate) struct Lease<'a> {
    idle: &'a Stack,
    slot: Option<Place>,
}

impl Lease<'_> {
    pub(crate) fn slot(&mut self) -> &mut Slot {
        self.slot
            .as_mut()
            .expect("the slot leaves the lease only on drop")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.counters.set_leased(false);
            self.idle.borrow_mut().push(slot);
        }
    }
}
