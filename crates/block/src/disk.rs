//! [`Disk`]: the block layer's handle to one device, shared by all threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_device::{
    AlignedBuf, AlignedPool, BlockDevice, DeviceInfo, Limits, Op, Segment, scope,
};

use crate::batch;
use crate::bio::Bio;
use crate::counters::Counters;
use crate::error::{CallerFault, Error, Result};
use crate::events::{Event, Listener};
use crate::flush::Flushes;
use crate::limits::BioLimits;
use crate::listeners::{Listeners, Subscription};
use crate::pipeline::{Pipeline, Setup};
use crate::queues::{Queues, Slot};
use crate::target::Target;
use crate::trace::Trace;

/// A device with its bio size target, queues, counters and listeners.
pub struct Disk {
    device: Arc<dyn BlockDevice>,
    limits: BioLimits,
    target: Target,
    queues: Queues,
    listeners: Arc<Listeners>,
    arenas: AlignedPool,
    lengthy: AtomicU64,
    flushes: Flushes,
}

/// Counts one call in [`Disk::lengthy`] until it is dropped.
struct Lengthy<'d>(&'d AtomicU64);

impl<'d> Lengthy<'d> {
    fn new(count: &'d AtomicU64) -> Lengthy<'d> {
        count.fetch_add(1, Ordering::Relaxed);
        Lengthy(count)
    }
}

impl Drop for Lengthy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The disk of a device that takes the place of another one's: with the same listeners and target size.
///
/// # Errors
/// As [`Disk::new`].
pub fn replaced(disk: &Disk, device: Arc<dyn BlockDevice>) -> Result<Disk> {
    let mut new = Disk::new(device)?;
    new.listeners = Arc::clone(&disk.listeners);
    new.set_bio_target_bytes(disk.target.chosen());
    Ok(new)
}

impl Disk {
    /// Opens a handle to `device`.
    ///
    /// # Errors
    /// If the device cannot open a queue, for example because the system forbids what its I/O engine needs.
    pub fn new(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let limits = BioLimits::new(&device.info().limits);
        let queues = Queues::new(Arc::clone(&device));
        drop(queues.lease()?);
        Ok(Self {
            limits,
            target: Target::new(&device.info().limits),
            queues,
            listeners: Arc::default(),
            arenas: batch::arenas(&limits),
            lengthy: AtomicU64::new(0),
            flushes: Flushes::default(),
            device,
        })
    }

    /// The device itself.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// The description of the device.
    pub fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// The device's limits.
    pub fn limits(&self) -> &Limits {
        &self.device.info().limits
    }

    /// Length in bytes. For a regular file it need not be a multiple of the logical block; I/O may reach to
    /// the end of the last block.
    pub fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    /// Sets the length of the device, a regular file, to `bytes`. New bytes read as zero.
    ///
    /// # Errors
    /// Device errors; [`io::ErrorKind::Unsupported`] as their source if the device cannot be resized.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        let failed = |source| Error::device(Op::Write, bytes, 0, source);
        self.device.set_len(bytes).map_err(failed)
    }

    /// Reserves space for a range of the device, a regular file, and extends the file to the end of the
    /// range.
    ///
    /// # Errors
    /// Device errors; [`io::ErrorKind::Unsupported`] as their source if the device cannot reserve space.
    pub fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let failed = |source| Error::device(Op::Write, offset, len, source);
        self.device.allocate(offset, len).map_err(failed)
    }

    /// Reserves space for a range of the device, a regular file, without changing its length.
    ///
    /// # Errors
    /// As [`Disk::allocate`].
    pub fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        let failed = |source| Error::device(Op::Write, offset, len, source);
        self.device.reserve(offset, len).map_err(failed)
    }

    /// Whether [`Disk::set_len`] can change the length.
    pub fn is_resizable(&self) -> bool {
        self.device.is_resizable()
    }

    /// The first byte at or after `offset` that is backed by host storage, as far as the host reports it;
    /// `None` if there is none up to the end.
    ///
    /// # Errors
    /// Device errors.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        let failed = |source| Error::device(Op::Read, offset, 0, source);
        self.device.seek_data(offset).map_err(failed)
    }

    /// The first byte at or after `offset` that lies in a hole; there is always one at the end. `None` if
    /// `offset` is at or past the end.
    ///
    /// # Errors
    /// Device errors.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        let failed = |source| Error::device(Op::Read, offset, 0, source);
        self.device.seek_hole(offset).map_err(failed)
    }

    /// The target size of bios, in bytes: the chosen one, else the one derived from the device.
    pub fn bio_target_bytes(&self) -> u32 {
        self.target.bytes()
    }

    /// Chooses the target size of bios for calls that begin from now on; `None` selects the one derived from
    /// the device.
    pub fn set_bio_target_bytes(&self, bytes: Option<u32>) {
        self.target.choose(bytes);
    }

    /// Bios that the device has completed, with or without an error. The count may be a few behind.
    pub fn answered(&self) -> u64 {
        // Read in this order, so that bios submitted in between do not count as completed.
        let submitted = self.counters().all_bios();
        submitted.saturating_sub(self.in_flight())
    }

    /// Counts since the disk was opened, summed over its queues.
    pub fn counters(&self) -> Counters {
        self.queues.counters()
    }

    /// Bios currently in flight.
    pub fn in_flight(&self) -> u64 {
        self.queues.in_flight()
    }

    /// The number of calls under way that may take the device long, however few bytes they name: flushes,
    /// durable writes, discards and zeroing by the device.
    pub fn lengthy(&self) -> u64 {
        self.lengthy.load(Ordering::Relaxed)
    }

    /// Cuts the device off: all I/O that begins from now on fails. Returns when I/O that began before has
    /// ended, except for writes in flight of a [`Stream`](crate::Stream), which its owner must wait for.
    pub fn cut(&self) {
        self.queues.cut();
    }

    /// Whether [`Disk::cut`] was called.
    pub fn is_cut(&self) -> bool {
        self.queues.is_cut()
    }

    /// Reports every bio of calls that begin from now on to `listener`, until the subscription is dropped.
    pub fn subscribe(&self, listener: Arc<dyn Listener>) -> Subscription {
        self.listeners.subscribe(listener)
    }

    /// As [`Disk::subscribe`], for as long as the disk is open.
    pub fn listen(&self, listener: Arc<dyn Listener>) {
        self.listeners.add(listener);
    }

    /// Reports an event of a layer above to the listeners. `event` is called only if there are any.
    pub fn report(&self, event: impl FnOnce() -> Event) {
        if let Some(listeners) = self.listeners.now() {
            let event = event();
            listeners.iter().for_each(|listener| listener.event(&event));
        }
    }

    /// Whether there are listeners. Costs one relaxed load.
    pub fn has_listeners(&self) -> bool {
        self.listeners.any()
    }

    /// Reads from device byte `offset` into `buf`. Offset and length must be multiples of the logical block;
    /// the memory may have any alignment.
    ///
    /// # Errors
    /// A misaligned range or one past the end; device errors. The content of `buf` is then undefined.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_batch(&mut [(offset, buf)])
    }

    /// Writes `buf` at device byte `offset`. Offset and length must be multiples of the logical block; the
    /// memory may have any alignment. With `fua` the data is durable on return.
    ///
    /// # Errors
    /// A misaligned range or one past the end; device errors, also those of [`Disk::flush`]. The content of
    /// the range is then undefined.
    pub fn write_at(&self, offset: u64, buf: &[u8], fua: bool) -> Result<()> {
        self.check(Op::Write, offset, buf.len() as u64)?;
        let by_flag = fua && self.limits().fua;
        batch::write(self, &[(offset, buf)], by_flag)?;
        if fua && !by_flag {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Reads all pieces, each as [`Disk::read_at`] does, in device order.
    ///
    /// # Errors
    /// The first error, as of [`Disk::read_at`]. The content of all memory is then undefined.
    pub fn read_batch(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
        for (offset, buf) in pieces.iter() {
            self.check(Op::Read, *offset, buf.len() as u64)?;
        }
        batch::read(self, pieces)
    }

    /// Writes all pieces, each as [`Disk::write_at`] does without `fua`, in device order and merged into long
    /// bios.
    ///
    /// # Errors
    /// The first error, as of [`Disk::write_at`]; two pieces that overlap. Any of the pieces may then be
    /// written.
    pub fn write_batch(&self, pieces: &[(u64, &[u8])]) -> Result<()> {
        for (offset, buf) in pieces {
            self.check(Op::Write, *offset, buf.len() as u64)?;
        }
        batch::write(self, pieces, false)
    }

    /// Makes everything written before this call durable. Calls of several threads share a flush of the
    /// device.
    ///
    /// # Errors
    /// Device errors. After the first one, all flushes fail with it, those in progress and all later ones:
    /// the device may have dropped what any of their callers had written.
    pub fn flush(&self) -> Result<()> {
        let _counted = Lengthy::new(&self.lengthy);
        self.flushes.run(|| self.range(Op::Flush, 0, 0))
    }

    /// Discards a range: its content is no longer needed, and undefined afterwards. Returns `false` if the
    /// device does not support that.
    ///
    /// # Errors
    /// A misaligned range or one past the end; device errors.
    pub fn discard(&self, offset: u64, len: u64) -> Result<bool> {
        self.check(Op::Discard, offset, len)?;
        if !self.limits().discard || len == 0 {
            return Ok(self.limits().discard);
        }
        let _counted = Lengthy::new(&self.lengthy);
        match self.range(Op::Discard, offset, len) {
            Err(error) if error.is_unsupported() => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Makes a range read as zeros, with the device's own operation if it has one, else by writing zeros.
    ///
    /// # Errors
    /// A misaligned range or one past the end; device errors. The content of the range is then undefined.
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        self.check(Op::WriteZeroes, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        if self.limits().write_zeroes {
            let _counted = Lengthy::new(&self.lengthy);
            match self.range(Op::WriteZeroes, offset, len) {
                Err(error) if error.is_unsupported() => {}
                other => return other,
            }
        }
        let most = batch::ARENA_BYTES.max(self.limits.logical_bytes as usize) as u64;
        let zeros_bytes = len.min(most);
        let align = self.limits.memory_align_bytes.next_power_of_two();
        let zeros = AlignedBuf::zeroed(zeros_bytes as usize, align);
        self.pipeline(Op::Write, |pipeline| {
            let mut at = offset;
            while at < offset + len {
                let here = zeros_bytes.min(offset + len - at);
                pipeline.add(at, Segment::Write(&zeros[..here as usize]))?;
                at += here;
            }
            Ok(())
        })
    }

    /// Calls `f` with a [`Pipeline`] for `op` (read or write), and returns when all that `f` added is done.
    /// Memory borrowed for `'env` belongs to the device until then, also if `f` fails or panics.
    ///
    /// Other calls on this disk are allowed while the pipeline is open: they use another queue.
    ///
    /// # Errors
    /// The error of `f` (bios not submitted by then are discarded), else the error of the first bio that
    /// failed.
    pub fn pipeline<'env, R, E: From<Error>>(
        &self,
        op: Op,
        f: impl FnOnce(&mut Pipeline<'_, '_, 'env>) -> core::result::Result<R, E>,
    ) -> core::result::Result<R, E> {
        if op != Op::Read && self.info().read_only {
            return Err(BioLimits::refuse(op, 0, 0, CallerFault::ReadOnly).into());
        }
        self.run(op, false, f)
    }

    /// A pool of bounce buffers: memory that the device can access, for data in memory that it cannot.
    pub fn bounce_pool(&self) -> &AlignedPool {
        &self.arenas
    }

    pub(crate) fn run<'env, R, E: From<Error>>(
        &self,
        op: Op,
        fua: bool,
        f: impl FnOnce(&mut Pipeline<'_, '_, 'env>) -> core::result::Result<R, E>,
    ) -> core::result::Result<R, E> {
        let _counted = fua.then(|| Lengthy::new(&self.lengthy));
        let mut lease = self.queues.lease()?;
        let Slot {
            queue,
            counters,
            done,
            meter,
        } = lease.slot();
        scope(&mut **queue, |scope| {
            let setup = Setup {
                op,
                fua,
                limits: self.limits,
                target_bytes: u64::from(self.target.bytes()),
                end_of_device: self.end_of_device(),
                counters,
                done,
                trace: Trace::new(self.listeners.now()),
                sample: meter.next_call(),
            };
            let mut pipeline = Pipeline::new(scope, setup);
            match f(&mut pipeline) {
                Ok(value) => {
                    pipeline.wait()?;
                    if let Some(sample) = pipeline.sample() {
                        meter.learn(op, &sample, self.limits(), &self.target);
                    }
                    Ok(value)
                }
                Err(error) => {
                    pipeline.cancel();
                    Err(error)
                }
            }
        })
    }

    /// Runs a single operation without memory.
    fn range(&self, op: Op, offset: u64, len: u64) -> Result<()> {
        let mut lease = self.queues.lease()?;
        let Slot {
            queue,
            counters,
            done,
            ..
        } = lease.slot();
        let mut trace = Trace::new(self.listeners.now());
        let bio = Bio {
            len_bytes: len,
            ..Bio::new(op, offset, trace.now())
        };
        scope(&mut **queue, |scope| {
            counters.bio(op, len);
            trace.submit(0, &bio);
            scope.submit_range(0, op, offset, len);
            scope.reap(1, done);
        });
        counters.done(done.len());
        let mut result = Ok(());
        for one in done.drain(..) {
            trace.complete(&one);
            result = one
                .result
                .map_err(|source| Error::device(op, offset, len, source));
        }
        result
    }

    /// The end of the last logical block, in bytes.
    fn end_of_device(&self) -> u64 {
        let len = self.len_bytes();
        len.checked_next_multiple_of(self.limits.logical_bytes)
            .unwrap_or(len)
    }

    /// Refuses an invalid range, and changes of a read-only device.
    pub(crate) fn check(&self, op: Op, offset: u64, len: u64) -> Result<()> {
        if op != Op::Read && self.info().read_only {
            return Err(BioLimits::refuse(op, offset, len, CallerFault::ReadOnly));
        }
        self.limits
            .check_range(op, offset, len, self.end_of_device())
    }

    pub(crate) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn queues(&self) -> &Queues {
        &self.queues
    }

    pub(crate) fn bio_limits(&self) -> &BioLimits {
        &self.limits
    }
}

impl Error {
    /// Whether the device does not support the operation.
    fn is_unsupported(&self) -> bool {
        matches!(self, Self::Device { source, .. } if source.kind() == io::ErrorKind::Unsupported)
    }
}
