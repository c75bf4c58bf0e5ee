//! The null device, to measure the cost of the layers above a device.

use std::io;

use crate::{BlockDevice, Completion, DeviceInfo, DeviceKind, Limits, Queue, Request};

/// A device without storage: writes are discarded, **reads leave the memory unchanged**. For measurements.
#[derive(Debug)]
pub struct NullDevice {
    info: DeviceInfo,
    len_bytes: u64,
}

impl NullDevice {
    /// A null device with a nominal length of `len_bytes`.
    pub fn new(len_bytes: u64) -> NullDevice {
        NullDevice::with_limits(len_bytes, Limits::default())
    }

    /// A null device with the given limits. It checks the range and alignment of requests, not their size.
    pub fn with_limits(len_bytes: u64, limits: Limits) -> NullDevice {
        let info = DeviceInfo {
            name: "null".into(),
            kind: DeviceKind::Null,
            engine: "null",
            direct: true,
            read_only: false,
            limits,
        };
        NullDevice { info, len_bytes }
    }
}

impl BlockDevice for NullDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(NullQueue {
            limits: self.info.limits,
            len_bytes: self.len_bytes,
            ready: Vec::new(),
        }))
    }
}

/// Holds copies of the device's fields, so that it shares nothing.
#[repr(align(128))] // written with each request, so on its own cache lines
struct NullQueue {
    limits: Limits,
    len_bytes: u64,
    ready: Vec<Completion>,
}

impl Queue for NullQueue {
    fn submit(&mut self, request: Request) {
        let result = self.limits.admit(&request, self.len_bytes);
        self.ready.push(Completion { request, result });
    }

    fn kick(&mut self) {}

    fn reap(&mut self, _wait_for: usize, done: &mut Vec<Completion>) {
        done.append(&mut self.ready);
    }

    fn in_flight(&self) -> usize {
        self.ready.len()
    }

    fn depth(&self) -> usize {
        self.limits.queue_depth.max(1) as usize
    }
}
