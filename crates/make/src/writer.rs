//! [`Writer`]: long writes of pieces at any place of a device.

use std::ops::Range;

use throughline_block::Disk;

use crate::buffer::Buffer;
use crate::error::Result;

/// The bytes of a long write, and of a batch that is full.
const LONG_WRITE_BYTES: usize = 4 << 20;

/// The most writes that are prepared at a time.
const BATCH_RUNS: usize = 256;

/// Reads bytes anywhere on the device.
///
/// # Errors
/// Of the device.
pub(crate) fn read_bytes(disk: &Disk, at: u64, len: usize) -> Result<Vec<u8>> {
    let unit = u64::from(disk.limits().logical_block_bytes);
    let from = at - at % unit;
    let whole = (at + len as u64).next_multiple_of(unit) - from;
    let mut bytes = vec![0; whole as usize];
    disk.read_at(from, &mut bytes)?;
    bytes.drain(..(at - from) as usize);
    bytes.truncate(len);
    Ok(bytes)
}

/// Collects pieces into long writes, and writes into batches that are on the device at the same time. Places
/// are relative to the start of the volume, and need not be aligned to the device's logical blocks: what else
/// is in the first and last of them is kept.
pub(crate) struct Writer<'d> {
    pub(crate) disk: &'d Disk,
    offset: u64,
    /// The bytes of the batch, then those of the run that grows. Each run begins at a multiple of the logical
    /// block.
    bytes: Buffer,
    /// Runs of the batch, in whole logical blocks: places on the device, ascending and disjoint, and bytes.
    batch: Vec<(u64, Range<usize>)>,
    /// Where the run that grows begins: on the device, at the start of a logical block, and in `bytes`.
    start: u64,
    first: usize,
    /// Bytes before those that were put, in its first logical block.
    lead: usize,
}

impl<'d> Writer<'d> {
    pub(crate) fn new(disk: &'d Disk, offset: u64) -> Writer<'d> {
        Writer {
            disk,
            offset,
            bytes: Buffer::default(),
            batch: Vec::new(),
            start: 0,
            first: 0,
            lead: 0,
        }
    }

    fn unit(&self) -> u64 {
        u64::from(self.disk.limits().logical_block_bytes)
    }

    /// Writes bytes at a place, soon.
    pub(crate) fn put(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut at = at + self.offset;
        for part in bytes.chunks(LONG_WRITE_BYTES) {
            let end = self.start + (self.bytes.len() - self.first) as u64;
            if at != end || self.bytes.len() + part.len() > LONG_WRITE_BYTES {
                self.end_run()?;
                self.begin_run(at);
            }
            self.bytes.extend_from_slice(part);
            at += part.len() as u64;
        }
        Ok(())
    }

    fn begin_run(&mut self, at: u64) {
        self.lead = (at % self.unit()) as usize;
        self.start = at - self.lead as u64;
        self.bytes.grow(self.lead);
    }

    /// Adds the run to the batch.
    fn end_run(&mut self) -> Result<()> {
        if self.bytes.len() == self.first {
            return Ok(());
        }
        let filled = self.bytes.len() - self.first;
        let tail = filled.next_multiple_of(self.unit() as usize) - filled;
        if self.lead > 0 || tail > 0 {
            self.complete(tail)?;
        }
        self.batch.push((self.start, self.first..self.bytes.len()));
        self.first = self.bytes.len();
        self.lead = 0;
        if self.bytes.len() >= LONG_WRITE_BYTES || self.batch.len() >= BATCH_RUNS {
            self.write_batch()?;
        }
        Ok(())
    }

    /// Fills the first and the last logical block of the run with what the device has there.
    fn complete(&mut self, tail: usize) -> Result<()> {
        // What is read may be in the batch.
        self.write_runs()?;
        let unit = self.unit();
        let mut block = vec![0; unit as usize];
        if self.lead > 0 {
            self.disk.read_at(self.start, &mut block)?;
            let lead = self.first..self.first + self.lead;
            self.bytes
                .range_mut(lead)
                .copy_from_slice(&block[..self.lead]);
        }
        if tail > 0 {
            let end = self.start + (self.bytes.len() + tail - self.first) as u64;
            self.disk.read_at(end - unit, &mut block)?;
            self.bytes.extend_from_slice(&block[unit as usize - tail..]);
        }
        Ok(())
    }

    /// Writes the runs of the batch, whose bytes are kept.
    fn write_runs(&mut self) -> Result<()> {
        let runs = self.batch.iter();
        let pieces: Vec<(u64, &[u8])> = runs
            .map(|(at, run)| (*at, &self.bytes[run.clone()]))
            .collect();
        self.disk.write_batch(&pieces)?;
        self.batch.clear();
        Ok(())
    }

    /// Writes the batch. No run is open.
    fn write_batch(&mut self) -> Result<()> {
        self.write_runs()?;
        self.bytes.clear();
        self.first = 0;
        Ok(())
    }

    /// Writes all that was put.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.end_run()?;
        self.write_batch()
    }

    /// Discards the whole logical blocks in a range and zeroes the rest of it. Whether that was possible.
    pub(crate) fn discard(&mut self, range: Range<u64>) -> Result<bool> {
        let (inside, unit) = (
            range.start + self.offset..range.end + self.offset,
            self.unit(),
        );
        let from = inside.start.next_multiple_of(unit);
        let to = inside.end - inside.end % unit;
        if from >= to || !self.disk.discard(from, to - from)? {
            return Ok(false);
        }
        self.zero_edge(inside.start..from)?;
        self.zero_edge(to..inside.end)?;
        Ok(true)
    }

    /// Makes a range read as zeros.
    pub(crate) fn zero(&mut self, range: Range<u64>) -> Result<()> {
        let (inside, unit) = (
            range.start + self.offset..range.end + self.offset,
            self.unit(),
        );
        let from = inside.start.next_multiple_of(unit);
        let to = inside.end - inside.end % unit;
        if from >= to {
            return self.zero_edge(inside);
        }
        self.zero_edge(inside.start..from)?;
        self.disk.write_zeroes(from, to - from)?;
        self.zero_edge(to..inside.end)
    }

    /// Zeroes a part of a logical block. `range` is in bytes of the device.
    fn zero_edge(&mut self, range: Range<u64>) -> Result<()> {
        if range.start >= range.end {
            return Ok(());
        }
        let zeros = vec![0; (range.end - range.start) as usize];
        self.put(range.start - self.offset, &zeros)?;
        self.flush()
    }

    /// Writes all that was put, and makes it durable.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.flush()?;
        Ok(self.disk.flush()?)
    }

    /// Writes what is left, and makes all of it durable.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.settle()
    }
}
