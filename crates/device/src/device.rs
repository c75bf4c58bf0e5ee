//! The two traits: a device, and one thread's queue to it.

use std::io;

use crate::{Completion, DeviceInfo, Request};

/// Something that stores bytes under offsets, in logical blocks.
///
/// Shared by all threads; each thread that does I/O opens a [`Queue`] of its own.
pub trait BlockDevice: Send + Sync {
    /// What the device is, how it is reached, and its limits. Does not change while it is open.
    fn info(&self) -> &DeviceInfo;

    /// Length in bytes.
    ///
    /// For a regular file this is the file's exact length, which need not be a multiple of the logical
    /// block. Requests are in whole logical blocks and may reach up to the length **rounded up** to one:
    /// a read gives zeros behind the file's end, a write there lengthens the file to the end of the
    /// request (and [`set_len`](BlockDevice::set_len) can cut it to the byte afterwards).
    fn len_bytes(&self) -> u64;

    /// Opens a queue. The caller keeps it for one thread and many requests.
    ///
    /// # Errors
    /// When the system refuses the resources (a ring, threads).
    fn open_queue(&self) -> io::Result<Box<dyn Queue>>;

    /// Makes a regular file `bytes` long; new bytes read as zero.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] on anything but a regular file, else what the system says.
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "only a regular file can change its length",
        ))
    }

    /// Reserves space for `len_bytes` bytes of a regular file from `offset_bytes` on, so that writing them cannot run
    /// out of it, and lengthens the file to their end. Bytes that were not there before read as zero.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where the file system cannot, or on anything but a regular file;
    /// [`io::ErrorKind::StorageFull`]; else what the system says.
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let _ = (offset_bytes, len_bytes);
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "only a regular file can have space reserved",
        ))
    }

    /// As [`allocate`](BlockDevice::allocate), and the length stays as it is: space behind the end is there for writes
    /// to come, until the length is set.
    ///
    /// # Errors
    /// As there.
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

    /// The first byte at or behind `offset_bytes` that has a place on the disk, as far as the system tells; `None` where
    /// there is none up to the end.
    ///
    /// # Errors
    /// What the system says.
    fn seek_data(&self, offset_bytes: u64) -> io::Result<Option<u64>> {
        Ok((offset_bytes < self.len_bytes()).then_some(offset_bytes))
    }

    /// The first byte at or behind `offset_bytes` that is in a hole, of which there is one behind the end; `None` where
    /// `offset_bytes` is behind the last byte.
    ///
    /// # Errors
    /// What the system says.
    fn seek_hole(&self, offset_bytes: u64) -> io::Result<Option<u64>> {
        let end = self.len_bytes();
        Ok((offset_bytes < end).then_some(end))
    }
}

/// One thread's way to a device.
///
/// Dropping a queue first waits for what is in flight.
pub trait Queue: Send {
    /// Takes a request. Whatever goes wrong comes back as its completion.
    ///
    /// The device may start at once or at the next [`kick`](Queue::kick) or [`reap`](Queue::reap). With
    /// [`depth`](Queue::depth) requests already there this first waits for one of them.
    fn submit(&mut self, request: Request);

    /// Pushes what was submitted to the device, without waiting.
    ///
    /// For work that goes on while the caller does something else. A caller that will wait next needs no
    /// `kick`: [`reap`](Queue::reap) pushes too, and an engine can then save a hand-over or a system call.
    fn kick(&mut self);

    /// Appends completions to `done`: at least `min(wait_for, in_flight)`, and whatever else has finished.
    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>);

    /// Requests submitted and not yet reaped.
    fn in_flight(&self) -> usize;

    /// How many requests the queue keeps on the device, or in line for it, at once; at least 1.
    fn depth(&self) -> usize;
}
