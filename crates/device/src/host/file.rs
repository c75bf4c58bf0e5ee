//! The open file behind all queues of a device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use rustix::ioctl;

use super::lock::LockedFile;
use crate::{DeviceInfo, DeviceKind, Op, Request};

/// The most segments that the kernel accepts in one call (`IOV_MAX`).
const MAX_SEGMENTS: usize = 1024;

/// `_IO(0x12, 119)` of linux/fs.h: takes `{offset, length}` in bytes.
const BLKDISCARD: ioctl::Opcode = ioctl::opcode::none(0x12, 119);

/// An open regular file or block device. Shared by its queues; only the length changes, and rarely.
pub(crate) struct HostFile {
    pub(crate) info: DeviceInfo,
    locked: LockedFile,
    /// For regular files the last known length: other processes may change it.
    len_bytes: AtomicU64,
}

impl HostFile {
    pub(crate) fn new(locked: LockedFile, info: DeviceInfo, len_bytes: u64) -> HostFile {
        HostFile {
            info,
            locked,
            len_bytes: AtomicU64::new(len_bytes),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.locked.file().as_fd()
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.info.limits.logical_block_bytes)
    }

    /// Checks whether `request` may be passed to the kernel.
    pub(crate) fn admit(&self, request: &Request) -> io::Result<()> {
        if self.info.read_only && !matches!(request.op(), Op::Read | Op::Flush) {
            let why = "the device is open for reading only";
            return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, why));
        }
        if request.segment_count() > MAX_SEGMENTS {
            let why = "a request has more segments than the kernel accepts";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.info.limits.admit(request, self.len_bytes())
    }

    /// The current length, read from the system if it can change.
    pub(crate) fn current_len_bytes(&self) -> io::Result<u64> {
        match self.info.kind {
            DeviceKind::RegularFile => Ok(self.locked.file().metadata()?.len()),
            _ => Ok(self.len_bytes()),
        }
    }

    /// Records that a write ended at `end`, which extends a file whose last block was partial.
    pub(crate) fn written_to(&self, end: u64) {
        if end > self.len_bytes() && self.info.kind == DeviceKind::RegularFile {
            self.len_bytes.fetch_max(end, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.locked.file().set_len(bytes)?;
        self.len_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        fallocate(self.fd(), FallocateFlags::empty(), offset_bytes, len_bytes)?;
        self.written_to(offset_bytes.saturating_add(len_bytes));
        Ok(())
    }

    pub(crate) fn reserve(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        Ok(fallocate(
            self.fd(),
            FallocateFlags::KEEP_SIZE,
            offset_bytes,
            len_bytes,
        )?)
    }

    /// Finds the next data or hole; `None` past the last one. Moves the open file's position, which is not
    /// used.
    pub(crate) fn seek(&self, to: SeekFrom) -> io::Result<Option<u64>> {
        match seek(self.fd(), to) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The `fallocate` mode for `op`; `None` if `op` is an ioctl ([`discard_blocks`]).
    ///
    /// [`discard_blocks`]: HostFile::discard_blocks
    pub(crate) fn fallocate_mode(&self, op: Op) -> Option<FallocateFlags> {
        match (op, self.info.kind) {
            (Op::WriteZeroes, _) => Some(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE),
            (Op::Discard, DeviceKind::RegularFile) => {
                Some(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
            }
            _ => None,
        }
    }

    /// Executes a discard or write-zeroes on the caller's thread.
    pub(crate) fn clear(&self, op: Op, offset_bytes: u64, len_bytes: u64) -> Result<(), Errno> {
        match self.fallocate_mode(op) {
            Some(mode) => fallocate(self.fd(), mode, offset_bytes, len_bytes),
            None => self.discard_blocks(offset_bytes, len_bytes),
        }
    }

    /// Executes `BLKDISCARD`. Unlike after punching a hole, the blocks need not read as zeros.
    fn discard_blocks(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), Errno> {
        // SAFETY: BLKDISCARD takes a pointer to two u64.
        let discard =
            unsafe { ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset_bytes, len_bytes]) };
        // SAFETY: it reads them and writes none of our memory.
        unsafe { ioctl::ioctl(self.fd(), discard) }
    }
}
