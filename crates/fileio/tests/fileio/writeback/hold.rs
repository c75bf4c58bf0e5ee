//! A device that holds back writes until they are released.

use std::io;
use std::sync::Arc;

use throughline_device::{BlockDevice, Completion, DeviceInfo, Op, Queue, Request};
use throughline_locks::{Condvar, Mutex};

#[derive(Default)]
struct State {
    holds: bool,
    /// Writes held back, of all queues.
    held: usize,
}

#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn hold(&self) {
        self.state.lock().holds = true;
    }

    pub(crate) fn release(&self) {
        self.state.lock().holds = false;
        self.changed.notify_all();
    }

    /// Waits until this many writes are held back.
    pub(crate) fn wait_held(&self, writes: usize) {
        let mut state = self.state.lock();
        while state.held < writes {
            self.changed.wait(&mut state);
        }
    }
}

pub(crate) struct HoldDevice {
    inner: Arc<dyn BlockDevice>,
    gate: Arc<Gate>,
}

impl HoldDevice {
    pub(crate) fn new(inner: Arc<dyn BlockDevice>) -> (HoldDevice, Arc<Gate>) {
        let gate = Arc::<Gate>::default();
        let device = HoldDevice {
            inner,
            gate: Arc::clone(&gate),
        };
        (device, gate)
    }
}

impl BlockDevice for HoldDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(HoldQueue {
            inner: self.inner.open_queue()?,
            gate: Arc::clone(&self.gate),
            held: Vec::new(),
        }))
    }
}

struct HoldQueue {
    inner: Box<dyn Queue>,
    gate: Arc<Gate>,
    held: Vec<Request>,
}

impl Queue for HoldQueue {
    fn submit(&mut self, request: Request) {
        let mut state = self.gate.state.lock();
        if request.op() == Op::Write && state.holds {
            state.held += 1;
            self.held.push(request);
            self.gate.changed.notify_all();
        } else {
            drop(state);
            self.inner.submit(request);
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let mut state = self.gate.state.lock();
        while state.holds && wait_for > self.inner.in_flight() && !self.held.is_empty() {
            self.gate.changed.wait(&mut state);
        }
        let mut free = Vec::new();
        if !state.holds {
            state.held -= self.held.len();
            free.append(&mut self.held);
        }
        drop(state);
        free.into_iter()
            .for_each(|request| self.inner.submit(request));
        self.inner.reap(wait_for.min(self.inner.in_flight()), done);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.held.len()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }
}
