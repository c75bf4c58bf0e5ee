//! Freeing a block while its old content is being written, on a device that holds writes back.

use std::sync::{Condvar, Mutex};

use throughline_device::{Completion, DeviceInfo, Queue, Request};

use super::*;

/// A block is forgotten while a write of its old content is in flight. The transaction that freed it must
/// become durable only after that write, so that data written to the reused block afterwards is not
/// overwritten.
#[test]
fn a_free_is_durable_only_after_writes_in_flight_of_the_old_content() {
    let below = memory();
    let gate = Arc::new(Gate::default());
    let device: Arc<dyn BlockDevice> = Arc::new(GatedDevice {
        below: Arc::clone(&below),
        gate: Arc::clone(&gate),
    });
    let journal = journal(&device);
    put(&journal, 6, 0x66);
    let (sender, forgotten) = std::sync::mpsc::channel();
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
            sender.send(()).unwrap();
        });
        // The message cannot arrive while the write is held. The timeout gives a commit that does not wait
        // time to show.
        let early = forgotten.recv_timeout(Duration::from_millis(200)).is_ok();
        gate.open();
        assert!(!early, "the commit did not wait for the write");
        forgotten.recv().unwrap();
    });
    assert_eq!(on_device(&below, 6)[0], 0xdd);
}

/// Holds writes back until it is opened.
#[derive(Default)]
struct Gate {
    /// Whether a write has arrived, and whether the gate is open.
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
