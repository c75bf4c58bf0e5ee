//! [`Disk`]: the handle on one device.

use std::sync::Arc;

use throughline_device::{AlignedBuf, BlockDevice, DeviceInfo, Limits, Op, Segment, scope};

use crate::counters::Counters;
use crate::error::{CallerFault, Error, Result};
use crate::events::{Listener, Listeners, Subscription};
use crate::limits::BioLimits;
use crate::queues::Queues;

/// A device with its derived size target, its queues, counters and listeners. Shared by all threads.
pub struct Disk {
    device: Arc<dyn BlockDevice>,
    limits: BioLimits,
    queues: Queues,
    listeners: Arc<Listeners>,
}

impl Disk {
    /// A handle on `device`.
    ///
    /// # Errors
    /// None today; a device that cannot be used will be refused here.
    pub fn new(device: Arc<dyn BlockDevice>) -> Result<Self> {
        Ok(Self {
            limits: BioLimits::new(&device.info().limits),
            queues: Queues::new(Arc::clone(&device)),
            listeners: Arc::default(),
            device,
        })
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// The device's limits.
    pub fn limits(&self) -> &Limits {
        &self.device.info().limits
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    /// What was done since the disk was opened, summed over its queues.
    pub fn counters(&self) -> Counters {
        self.queues.counters()
    }

    /// Tells `listener` about every bio until the subscription is dropped.
    pub fn subscribe(&self, listener: Arc<dyn Listener>) -> Subscription {
        self.listeners.subscribe(listener)
    }

    /// Fills `buf` from device byte `offset`; both in whole logical blocks, the memory anywhere.
    ///
    /// # Errors
    /// A misaligned range or one past the end; what the device says. `buf` is then undefined.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_batch(&mut [(offset, buf)])
    }

    /// Writes `buf` at device byte `offset`; both in whole logical blocks, the memory anywhere. With `fua` it survives a
    /// power loss once this returns.
    ///
    /// # Errors
    /// A misaligned range or one past the end; what the device says. The range is then undefined.
    pub fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> Result<()> {
        self.write_batch(&[(offset, buf)])?;
        if fua { self.flush() } else { Ok(()) }
    }

    /// Reads all pieces, each as [`Disk::read_at`].
    ///
    /// # Errors
    /// As [`Disk::read_at`], the first of them.
    pub fn read_batch(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
        for (offset, buf) in pieces {
            self.check(Op::Read, *offset, buf.len() as u64)?;
            let mut bounce = AlignedBuf::zeroed(buf.len(), self.limits.memory_align_bytes);
            self.one(
                Op::Read,
                *offset,
                buf.len() as u64,
                [Segment::Read(&mut bounce)],
            )?;
            buf.copy_from_slice(&bounce);
        }
        Ok(())
    }

    /// Writes all pieces, which must not overlap, each as [`Disk::write_at`].
    ///
    /// # Errors
    /// As [`Disk::write_at`], the first of them.
    pub fn write_batch(&self, pieces: &[(u64, &[u8])]) -> Result<()> {
        for (offset, buf) in pieces {
            self.check(Op::Write, *offset, buf.len() as u64)?;
            let mut bounce = AlignedBuf::zeroed(buf.len(), self.limits.memory_align_bytes);
            bounce.copy_from_slice(buf);
            self.one(
                Op::Write,
                *offset,
                buf.len() as u64,
                [Segment::Write(&bounce)],
            )?;
        }
        Ok(())
    }

    /// Everything written before this call survives a power loss once it returns.
    ///
    /// # Errors
    /// What the device says.
    pub fn flush(&self) -> Result<()> {
        self.one(Op::Flush, 0, 0, [])
    }

    fn one<'env>(
        &self,
        op: Op,
        offset: u64,
        len: u64,
        segments: impl IntoIterator<Item = Segment<'env>>,
    ) -> Result<()> {
        let mut lease = self.queues.lease()?;
        let mut done = Vec::new();
        scope(&mut *lease.slot().queue, |scope| {
            match op {
                Op::Read | Op::Write => scope.submit(0, op, offset, segments, false),
                _ => scope.submit_range(0, op, offset, len),
            }
            scope.reap(1, &mut done);
        });
        for one in done {
            one.result
                .map_err(|source| Error::device(op, offset, len, source))?;
        }
        Ok(())
    }

    /// Refuses a range that no device could serve.
    fn check(&self, op: Op, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        let block = self.limits.logical_bytes;
        let end_of_device = self
            .len_bytes()
            .checked_next_multiple_of(block)
            .unwrap_or(u64::MAX);
        let reason = if offset_bytes % block != 0 || len_bytes % block != 0 {
            CallerFault::Misaligned
        } else if offset_bytes
            .checked_add(len_bytes)
            .is_none_or(|end| end > end_of_device)
        {
            CallerFault::OutOfRange
        } else if op != Op::Read && self.info().read_only {
            CallerFault::ReadOnly
        } else {
            return Ok(());
        };
        Err(Error::Caller {
            op,
            offset_bytes,
            len_bytes,
            reason,
        })
    }
}
