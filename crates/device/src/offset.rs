//! A window of another device: an image inside a disk, or a partition.

use std::io;
use std::sync::Arc;

use crate::{BlockDevice, Completion, DeviceInfo, Queue, Request};

/// The bytes `[offset, offset + len)` of another device, as a device.
pub struct OffsetDevice {
    inner: Arc<dyn BlockDevice>,
    offset_bytes: u64,
    len_bytes: u64,
}

impl OffsetDevice {
    /// A window that begins at `offset_bytes` and is `len_bytes` long; `None` means up to the end of the
    /// device.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if it does not begin and end at multiples of the logical block (except
    /// at the device's end), or is not inside the device.
    pub fn new(
        inner: Arc<dyn BlockDevice>,
        offset_bytes: u64,
        len_bytes: Option<u64>,
    ) -> io::Result<OffsetDevice> {
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let block = inner.info().limits.logical_block_bytes;
        if !offset_bytes.is_multiple_of(u64::from(block)) {
            return refuse(format!(
                "offset {offset_bytes} is not a multiple of the block of {block} bytes"
            ));
        }
        let Some(room) = inner.len_bytes().checked_sub(offset_bytes) else {
            return refuse(format!(
                "offset {offset_bytes} is past the end at {}",
                inner.len_bytes()
            ));
        };
        let len_bytes = len_bytes.unwrap_or(room);
        if len_bytes > room {
            return refuse(format!(
                "{len_bytes} bytes at {offset_bytes} reach past the end at {}",
                inner.len_bytes()
            ));
        }
        if len_bytes != room && !len_bytes.is_multiple_of(u64::from(block)) {
            // Otherwise its last block would extend past the window.
            return refuse(format!(
                "length {len_bytes} is not a multiple of the block of {block} bytes"
            ));
        }
        Ok(OffsetDevice {
            inner,
            offset_bytes,
            len_bytes,
        })
    }

    fn check(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let end = offset_bytes.checked_add(len_bytes);
        match end.is_some_and(|end| end <= self.len_bytes) {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

impl BlockDevice for OffsetDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn whole(&self) -> Option<Arc<dyn BlockDevice>> {
        Some(Arc::clone(&self.inner))
    }

    /// Inside the window only.
    fn reserve(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.check(offset_bytes, len_bytes)?;
        self.inner
            .reserve(self.offset_bytes + offset_bytes, len_bytes)
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(OffsetQueue {
            inner: self.inner.open_queue()?,
            limits: self.inner.info().limits,
            offset_bytes: self.offset_bytes,
            len_bytes: self.len_bytes,
            refused: Vec::new(),
        }))
    }
}

struct OffsetQueue {
    inner: Box<dyn Queue>,
    limits: crate::Limits,
    offset_bytes: u64,
    len_bytes: u64,
    /// Refused requests that are not reaped yet.
    refused: Vec<Completion>,
}

impl Queue for OffsetQueue {
    fn submit(&mut self, mut request: Request) {
        if let Err(error) = self.limits.admit(&request, self.len_bytes) {
            self.refused.push(Completion {
                request,
                result: Err(error),
            });
            return;
        }
        // Only a flush can overflow, and its range is ignored: the window is inside the device.
        request.set_offset_bytes(request.offset_bytes().wrapping_add(self.offset_bytes));
        self.inner.submit(request);
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let wait_for = wait_for.saturating_sub(self.refused.len());
        let first = done.len();
        self.inner.reap(wait_for, done);
        for completion in &mut done[first..] {
            let request = &mut completion.request;
            request.set_offset_bytes(request.offset_bytes().wrapping_sub(self.offset_bytes));
        }
        done.append(&mut self.refused);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.refused.len()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }
}
