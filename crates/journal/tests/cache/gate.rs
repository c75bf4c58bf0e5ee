//! A device that holds writes back, and what is freed meanwhile.

use std::sync::{Condvar, Mutex};

use throughline_device::{Completion, DeviceInfo, Queue, Request};

use super::*;

/// A block that is forgotten while its old content is on the way to the device: the transaction that freed it is
/// durable only when that has arrived, so that data written into the reused block afterwards stays.
#[test]
fn a_freed_block_is_free_when_nothing_of_it_is_on_its_way() {
    let below = memory();
    let gate = Arc::new(Gate::default());
    let device: Arc<dyn BlockDevice> = Arc::new(GatedDevice {
        below: Arc::clone(&below),
        gate: Arc::clone(&gate),
    });
    let journal = journal(&device);
    put(&journal, 6, 0x66);
    let (told, forgotten) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| journal.sync().unwrap());
        gate.wait_for_arrival();
        scope.spawn(|| {
            let mut handle = journal.begin(1).unwrap();
            handle.forget(FsBlock(6));
            let freed_in = handle.tid();
            handle.stop().unwrap();
            journal.sync_through(freed_in).unwrap();
            assert_eq!(journal.committed(), freed_in);
            let data = vec![0xdd; BLOCK as usize];
            Disk::new(Arc::clone(&below))
                .unwrap()
                .write_at(6 * u64::from(BLOCK), &data, false)
                .unwrap();
            told.send(()).unwrap();
        });
        // It cannot come while the write is held. A `forget` that does not wait is given the time to show it.
        let early = forgotten.recv_timeout(Duration::from_millis(200)).is_ok();
        gate.open();
        assert!(!early, "did not wait");
        forgotten.recv().unwrap();
    });
    assert_eq!(on_device(&below, 6)[0], 0xdd);
}

/// Holds writes until it is opened.
#[derive(Default)]
struct Gate {
    /// A write has arrived; the gate is open.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    fn wait_for_arrival(&self) {
        drop(
            self.changed
                .wait_while(self.state.lock().unwrap(), |state| !state.0)
                .unwrap(),
        );
    }

    fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.1).unwrap());
    }
}

struct GatedDevice {
    below: Arc<dyn BlockDevice>,
    gate: Arc<Gate>,
}

struct GatedQueue {
    below: Box<dyn Queue>,
    gate: Arc<Gate>,
}

impl BlockDevice for GatedDevice {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }

    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn open_queue(&self) -> std::io::Result<Box<dyn Queue>> {
        Ok(Box::new(GatedQueue {
            below: self.below.open_queue()?,
            gate: Arc::clone(&self.gate),
        }))
    }
}

impl Queue for GatedQueue {
    fn submit(&mut self, request: Request) {
        if request.op() == Op::Write {
            self.gate.pass();
        }
        self.below.submit(request);
    }

    fn kick(&mut self) {
        self.below.kick();
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        self.below.reap(wait_for, done);
    }

    fn in_flight(&self) -> usize {
        self.below.in_flight()
    }

    fn depth(&self) -> usize {
        self.below.depth()
    }
}
