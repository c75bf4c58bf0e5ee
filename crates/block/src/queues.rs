//! The device queues of each thread.
//!
//! A thread submits to queues that no other thread uses, so submitting takes no lock and writes no cache line
//! that another thread writes. A thread may need a second queue while its first is in use (a metadata read
//! while a data pipeline is open), so each thread keeps a *stack* of idle queues: a lease pops the top one,
//! or opens a new one if the stack is empty, and pushes it back when dropped. So a thread owns as many queues
//! as its deepest nesting. Stacks and slots are padded, because those of different threads may be adjacent in
//! memory.
//!
//! A device that was cut off ([`Queues::cut`]) gives no more leases. A thread that takes a lease first sets
//! its queue's leased flag, in the queue's own cache line, and then checks whether the device is cut off. A
//! thread that cuts first sets the cut flag and then checks the leased flags. So at least one of the two
//! threads sees the other's flag.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use thread_local::ThreadLocal;
use throughline_device::{BlockDevice, Done, Lane, Op, Queue};
use throughline_locks::Mutex;

use crate::counters::{Counters, QueueCounters};
use crate::error::{Error, Result};
use crate::meter::Meter;

/// The error if a queue cannot be opened.
fn refused(source: io::Error) -> Error {
    Error::system("opening a queue of the device", source)
}

/// A queue with its counters and meter.
pub(crate) struct Slot {
    pub(crate) queue: Box<dyn Queue>,
    pub(crate) counters: Arc<QueueCounters>,
    /// Buffer for completions, kept so that a call does not allocate.
    pub(crate) done: Vec<Done>,
    pub(crate) meter: Meter,
}

/// A boxed slot: only the pointer moves between stack and lease.
type Place = Box<CachePadded<Slot>>;

type Stack = CachePadded<RefCell<Vec<Place>>>;

/// All queues of one device.
pub(crate) struct Queues {
    device: Arc<dyn BlockDevice>,
    idle: ThreadLocal<Stack>,
    /// The counters of every queue ever opened. Locked when a queue opens and when counters are summed, never
    /// per I/O.
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

    /// Refuses leases from now on, and waits until none is in use.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        // This is rare and short, so polling is enough.
        while self.counters.lock().iter().any(|one| one.is_leased()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether [`Queues::cut`] was called.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    /// The error for I/O to a device that was cut off.
    pub(crate) fn cut_off(op: Op, offset: u64, len: u64) -> Error {
        let source = io::Error::other("the device was cut off: the volume was taken down");
        Error::device(op, offset, len, source)
    }

    /// Leases a queue to this thread until the lease is dropped.
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
        let queue = self.device.open_queue().map_err(refused)?;
        let counters = self.new_counters();
        Ok(Box::new(CachePadded::new(Slot {
            queue,
            counters,
            done: Vec::new(),
            meter: Meter::new(&self.device.info().limits),
        })))
    }

    /// Opens a queue for requests that own their memory. It is in no thread's stack. Returns it with its
    /// counters.
    pub(crate) fn open_lane(&self) -> Result<(Lane, Arc<QueueCounters>)> {
        let lane = Lane::open(&*self.device).map_err(refused)?;
        Ok((lane, self.new_counters()))
    }

    fn new_counters(&self) -> Arc<QueueCounters> {
        let counters = Arc::new(QueueCounters::default());
        self.counters.lock().push(Arc::clone(&counters));
        counters
    }

    /// Bios in flight, on all queues.
    pub(crate) fn in_flight(&self) -> u64 {
        self.counters.lock().iter().map(|one| one.in_flight()).sum()
    }

    /// The sum of all queues' counters.
    pub(crate) fn counters(&self) -> Counters {
        self.counters
            .lock()
            .iter()
            .fold(Counters::default(), |sum, one| sum.plus(&one.read()))
    }
}

/// A queue in use by this thread. Returns to the thread's stack when dropped.
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
