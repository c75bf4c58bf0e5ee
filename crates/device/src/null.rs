//! The null device: what a path costs when the device costs nothing.

use std::io;

use crate::{BlockDevice, Completion, DeviceInfo, DeviceKind, Limits, Queue, Request};

/// A device without a store: writes vanish, **reads leave the memory as it is**. For measuring.
#[derive(Debug)]
pub struct NullDevice {
    info: DeviceInfo,
    len_bytes: u64,
}

impl NullDevice {
    /// A null device that seems `len_bytes` long.
    pub fn new(len_bytes: u64) -> NullDevice {
        NullDevice::with_limits(len_bytes, Limits::default())
    }

    /// A null device with limits of the caller's choice. It holds requests to their range and alignment,
    /// not to their size.
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

/// Copies what it needs from the device, so that it shares nothing.
#[repr(align(128))] // written with each request: on lines of its own
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
