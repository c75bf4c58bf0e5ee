//! Two devices as one, such as a volume and its journal on another device.
//!
//! ```text
//! 0 ─ first device ─ its end ┄ nothing ┄ begin ─ second device ─ end
//! ```
//!
//! Invariants:
//! - A flush is complete when both devices are flushed: first the first one, then the second. So it makes
//!   durable all writes to both that completed before it was submitted.
//! - A request for a range that is not on one of them is refused.

use std::io;
use std::sync::Arc;

use crate::{BlockDevice, Completion, DeviceInfo, Limits, Op, Queue, Request};

/// See the head of this file.
pub struct JoinedDevice {
    first: Arc<dyn BlockDevice>,
    second: Arc<dyn BlockDevice>,
    begin_bytes: u64,
    info: DeviceInfo,
}

impl JoinedDevice {
    /// Joins two devices; `second` begins at `begin_bytes`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if that is not a multiple of the logical block of both, inside the
    /// first device, or so large that there is no end.
    pub fn new(
        first: Arc<dyn BlockDevice>,
        second: Arc<dyn BlockDevice>,
        begin_bytes: u64,
    ) -> io::Result<JoinedDevice> {
        let limits = both(&first.info().limits, &second.info().limits);
        let is_apart = begin_bytes >= first.len_bytes()
            && begin_bytes.is_multiple_of(limits.logical_block_bytes.into())
            && begin_bytes.checked_add(second.len_bytes()).is_some();
        if !is_apart {
            let why = format!("a second device cannot begin at byte {begin_bytes}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let info = DeviceInfo {
            read_only: first.info().read_only || second.info().read_only,
            direct: first.info().direct && second.info().direct,
            limits,
            ..first.info().clone()
        };
        Ok(JoinedDevice {
            first,
            second,
            begin_bytes,
            info,
        })
    }

    /// Fails if a range is not inside the first device.
    fn check_first(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let end = offset_bytes.checked_add(len_bytes);
        match end.is_some_and(|end| end <= self.first.len_bytes()) {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

/// Limits that both devices keep.
fn both(a: &Limits, b: &Limits) -> Limits {
    Limits {
        logical_block_bytes: a.logical_block_bytes.max(b.logical_block_bytes),
        physical_block_bytes: a.physical_block_bytes.max(b.physical_block_bytes),
        memory_align_bytes: a.memory_align_bytes.max(b.memory_align_bytes),
        max_transfer_bytes: a.max_transfer_bytes.min(b.max_transfer_bytes),
        max_segments: a.max_segments.min(b.max_segments),
        virt_boundary_mask: a.virt_boundary_mask | b.virt_boundary_mask,
        queue_depth: a.queue_depth.min(b.queue_depth),
        fua: a.fua && b.fua,
        volatile_cache: a.volatile_cache || b.volatile_cache,
        // What is preferred for data, and discarded, is on the first one.
        ..*a
    }
}

impl BlockDevice for JoinedDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len_bytes(&self) -> u64 {
        self.begin_bytes + self.second.len_bytes()
    }

    /// Of the first device.
    fn reserve(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.check_first(offset_bytes, len_bytes)?;
        self.first.reserve(offset_bytes, len_bytes)
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(JoinedQueue {
            first: self.first.open_queue()?,
            second: self.second.open_queue()?,
            limits: self.info.limits,
            lens_bytes: [self.first.len_bytes(), self.second.len_bytes()],
            begin_bytes: self.begin_bytes,
            refused: Vec::new(),
            reaped: Vec::new(),
        }))
    }
}

struct JoinedQueue {
    first: Box<dyn Queue>,
    second: Box<dyn Queue>,
    limits: Limits,
    /// Of the two devices.
    lens_bytes: [u64; 2],
    begin_bytes: u64,
    /// Refused requests that are not reaped yet.
    refused: Vec<Completion>,
    /// Completions of one device, while they are handed on.
    reaped: Vec<Completion>,
}

impl JoinedQueue {
    /// Hands on what the first device has completed; flushes go on to the second.
    fn reap_first(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        self.first.reap(wait_for, &mut self.reaped);
        for completion in self.reaped.drain(..) {
            if completion.request.op() == Op::Flush && completion.result.is_ok() {
                self.second.submit(completion.request);
            } else {
                done.push(completion);
            }
        }
    }

    fn reap_second(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        self.second.reap(wait_for, &mut self.reaped);
        for mut completion in self.reaped.drain(..) {
            let request = &mut completion.request;
            if request.op() != Op::Flush {
                request.set_offset_bytes(request.offset_bytes().wrapping_add(self.begin_bytes));
            }
            done.push(completion);
        }
    }
}

impl Queue for JoinedQueue {
    fn submit(&mut self, mut request: Request) {
        if request.op() == Op::Flush {
            self.first.submit(request);
            return;
        }
        let inner = request.offset_bytes().checked_sub(self.begin_bytes);
        let [first_len, second_len] = self.lens_bytes;
        if let Some(inner) = inner {
            request.set_offset_bytes(inner);
        }
        let len = if inner.is_some() {
            second_len
        } else {
            first_len
        };
        if let Err(error) = self.limits.admit(&request, len) {
            if inner.is_some() {
                request.set_offset_bytes(request.offset_bytes().wrapping_add(self.begin_bytes));
            }
            self.refused.push(Completion {
                request,
                result: Err(error),
            });
            return;
        }
        match inner {
            Some(_) => self.second.submit(request),
            None => self.first.submit(request),
        }
    }

    fn kick(&mut self) {
        self.first.kick();
        self.second.kick();
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let wanted = wait_for.min(self.in_flight());
        let before = done.len();
        done.append(&mut self.refused);
        loop {
            // Each device completes its requests whether the other one is waited for or not.
            let is_short = done.len() - before < wanted;
            self.reap_first(usize::from(is_short && self.first.in_flight() > 0), done);
            let is_short = done.len() - before < wanted;
            let on_second = is_short && self.first.in_flight() == 0;
            self.reap_second(usize::from(on_second), done);
            if done.len() - before >= wanted {
                return;
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.first.in_flight() + self.second.in_flight() + self.refused.len()
    }

    fn depth(&self) -> usize {
        self.first.depth().min(self.second.depth())
    }
}
