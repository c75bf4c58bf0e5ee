//! The two traits: a device, and a queue to it.

use std::io;
use std::sync::Arc;

use crate::{Completion, DeviceInfo, Request};

/// A device that stores bytes, addressed in logical blocks.
///
/// Shared by all threads; each thread that does I/O opens its own [`Queue`].
pub trait BlockDevice: Send + Sync {
    /// The device's kind, engine and limits. Constant while the device is open.
    fn info(&self) -> &DeviceInfo;

    /// Length in bytes.
    ///
    /// For a regular file this is the file's exact length, which need not be a multiple of the logical block.
    /// Requests are in whole logical blocks and may reach to the length **rounded up** to a logical block: a
    /// read returns zeros past the end of the file, and a write there extends the file to the end of the
    /// request ([`set_len`](BlockDevice::set_len) can truncate it afterwards).
    fn len_bytes(&self) -> u64;

    /// Opens a queue. Opening is expensive: keep the queue for many requests of one thread.
    ///
    /// # Errors
    /// If the system refuses the resources (a ring, threads).
    fn open_queue(&self) -> io::Result<Box<dyn Queue>>;

    /// Sets the length of a regular file to `bytes`. New bytes read as zero.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] on anything but a regular file; system errors.
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "only a regular file can change its length",
        ))
    }

    /// Reserves space for `len_bytes` bytes of a regular file from `offset_bytes` on, so that writing them
    /// cannot fail for lack of space, and extends the file to their end. New bytes read as zero.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if the file system cannot, or on anything but a regular file;
    /// [`io::ErrorKind::StorageFull`]; other system errors.
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let _ = (offset_bytes, len_bytes);
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "only a regular file can have space reserved",
        ))
    }

    /// As [`allocate`](BlockDevice::allocate), but does not change the length. Space past the end stays
    /// reserved for later writes until the length is set.
    ///
    /// # Errors
    /// As [`allocate`](BlockDevice::allocate).
    fn reserve(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let _ = (offset_bytes, len_bytes);
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "only a regular file can have space reserved",
        ))
    }

    /// Whether [`set_len`](BlockDevice::set_len) can change the length.
    fn is_resizable(&self) -> bool {
        false
    }

    /// The device of which this is a window.
    fn whole(&self) -> Option<Arc<dyn BlockDevice>> {
        None
    }

    /// The first byte at or after `offset_bytes` that is backed by storage, as far as the system reports it;
    /// `None` if there is none up to the end.
    ///
    /// # Errors
    /// System errors.
    fn seek_data(&self, offset_bytes: u64) -> io::Result<Option<u64>> {
        Ok((offset_bytes < self.len_bytes()).then_some(offset_bytes))
    }

    /// The first byte at or after `offset_bytes` that lies in a hole; there is always one at the end. `None`
    /// if `offset_bytes` is at or past the end.
    ///
    /// # Errors
    /// System errors.
    fn seek_hole(&self, offset_bytes: u64) -> io::Result<Option<u64>> {
        let end = self.len_bytes();
        Ok((offset_bytes < end).then_some(end))
    }
}

/// A queue to a device, used by one thread at a time.
///
/// Dropping a queue first waits for all requests in flight.
pub trait Queue: Send {
    /// Submits a request. All errors are reported in its completion.
    ///
    /// The device may start at once or at the next [`kick`](Queue::kick) or [`reap`](Queue::reap). With
    /// [`depth`](Queue::depth) requests in the queue, the call first waits for one of them.
    fn submit(&mut self, request: Request);

    /// Pushes submitted requests to the device, without waiting.
    ///
    /// Lets the device work while the caller does something else. A caller that waits next needs no `kick`:
    /// [`reap`](Queue::reap) pushes too, and may then save a thread switch or a system call.
    fn kick(&mut self);

    /// Appends completions to `done`: at least `min(wait_for, in_flight)` of them, and all others that have
    /// finished.
    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>);

    /// Requests submitted and not yet reaped.
    fn in_flight(&self) -> usize;

    /// The most requests that the queue keeps in flight; at least 1.
    fn depth(&self) -> usize;
}
