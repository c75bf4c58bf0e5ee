//! A memory device that can be hollowed out: from then on reads succeed without moving data, so that a file
//! in an image can be used to measure the path alone. Writes still go to memory; the metadata is cached by
//! then.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use throughline_device::{
    BlockDevice, Completion, DeviceInfo, MemoryDevice, NullDevice, Op, Queue, Request, Segment,
    scope,
};

use crate::Result;

/// See the module.
pub(crate) struct HollowDevice {
    memory: MemoryDevice,
    null: NullDevice,
    hollow: Arc<AtomicBool>,
}

/// Loads an image file into a memory device.
pub(crate) fn load_image(image: &Path) -> Result<MemoryDevice> {
    let content = std::fs::read(image)?;
    let device = MemoryDevice::new(content.len() as u64);
    let mut queue = device.open_queue()?;
    let mut done = Vec::new();
    scope(&mut *queue, |scope| {
        for (number, chunk) in content.chunks(1 << 20).enumerate() {
            scope.submit(
                number as u64,
                Op::Write,
                (number << 20) as u64,
                [Segment::Write(chunk)],
                false,
            );
            scope.reap(1, &mut done);
        }
    });
    done.into_iter().try_for_each(|d| d.result)?;
    Ok(device)
}

impl HollowDevice {
    /// Loads an image file into memory.
    pub(crate) fn load(image: &Path) -> Result<HollowDevice> {
        let memory = load_image(image)?;
        let null = NullDevice::new(memory.len_bytes());
        Ok(HollowDevice {
            memory,
            null,
            hollow: Arc::default(),
        })
    }

    /// From now on reads move no data.
    pub(crate) fn hollow_out(&self) {
        self.hollow.store(true, Ordering::Release);
    }
}

impl BlockDevice for HollowDevice {
    fn info(&self) -> &DeviceInfo {
        self.memory.info()
    }

    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        let (memory, null) = (self.memory.open_queue()?, self.null.open_queue()?);
        Ok(Box::new(HollowQueue {
            memory,
            null,
            hollow: Arc::clone(&self.hollow),
        }))
    }
}

struct HollowQueue {
    memory: Box<dyn Queue>,
    null: Box<dyn Queue>,
    hollow: Arc<AtomicBool>,
}

impl Queue for HollowQueue {
    fn submit(&mut self, request: Request) {
        let hollow = request.op() == Op::Read && self.hollow.load(Ordering::Relaxed);
        if hollow {
            self.null.submit(request)
        } else {
            self.memory.submit(request)
        }
    }

    fn kick(&mut self) {
        self.null.kick();
        self.memory.kick();
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let before = done.len();
        self.null.reap(wait_for.min(self.null.in_flight()), done);
        let got = done.len() - before;
        if self.memory.in_flight() > 0 {
            self.memory.reap(wait_for.saturating_sub(got), done);
        }
    }

    fn in_flight(&self) -> usize {
        self.null.in_flight() + self.memory.in_flight()
    }

    fn depth(&self) -> usize {
        self.memory.depth().min(self.null.depth())
    }
}
