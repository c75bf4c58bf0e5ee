//! The write half of direct I/O.
//!
//! A call is a sequence of *batches*: claim, write, commit. The size of a batch is limited, so that neither
//! memory use nor the time until the first bytes are committed grows with the call. A batch takes one *round*
//! of the pipeline, or several if it needs more bounce buffers than one round has.
//!
//! Invariants:
//! - A claim is committed only when all of it, including zeros around the caller's data, is on the device.
//! - On an error the current batch is abandoned as a whole. The call reports as written what was committed.

use std::io::IoSlice;

use throughline_block::{Disk, Pipeline};
use throughline_device::{Op, Segment};

use super::bounce::{Bounce, Store};
use super::memory::{Alignment, Step, WriteMemory};
use crate::error::{Error, Reason, Result};
use crate::mapper::{Claim, ClaimKind, Mapper, Target};
use crate::zeros::zeros;

/// A batch is committed once it has this many bytes.
const BATCH_BYTES: u64 = 64 << 20;

/// A batch is committed once it has this many claims.
const BATCH_CLAIMS: usize = 1024;

/// Writes `bufs` in order at byte `offset` of the file, and grows the file if they end past its end. Returns
/// the number of bytes written and committed. It is less than given only if an error occurred later; the next
/// call meets that error.
///
/// # Errors
/// Those of the mapper and the device, if nothing was committed before the error.
pub fn write(disk: &Disk, mapper: &dyn Mapper, offset: u64, bufs: &[IoSlice<'_>]) -> Result<usize> {
    let given = bufs
        .iter()
        .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
    let end = offset
        .checked_add(given)
        .ok_or(Error::Caller(Reason::TooLarge))?;
    if given == 0 {
        return Ok(0);
    }
    zero_past_end(disk, mapper, offset)?;
    write_all(disk, mapper, offset, end, bufs, true)
}

/// Zeroes the rest of the file's last block past the end of the file, before a write further on makes it
/// readable: a write that failed before its commit may have left data there.
fn zero_past_end(disk: &Disk, mapper: &dyn Mapper, offset: u64) -> Result<()> {
    let mut at = mapper.size_bytes();
    let unit = u64::from(mapper.block_bytes().max(1));
    let end = at
        .checked_next_multiple_of(unit)
        .map_or(offset, |end| end.min(offset));
    if at >= end || !matches!(mapper.map(at, end - at)?.target, Target::Data { .. }) {
        return Ok(());
    }
    while at < end {
        let zeros = zeros(end - at);
        let to = at + zeros.len() as u64;
        at += write_all(disk, mapper, at, to, &[IoSlice::new(zeros)], false)? as u64;
    }
    Ok(())
}

/// Writes `bufs`, the non-empty range `offset..end`.
fn write_all(
    disk: &Disk,
    mapper: &dyn Mapper,
    offset: u64,
    end: u64,
    bufs: &[IoSlice<'_>],
    may_grow: bool,
) -> Result<usize> {
    let mut writer = Writer {
        disk,
        mapper,
        may_grow,
        alignment: Alignment::of(disk),
        memory: WriteMemory::new(bufs),
        end,
        at: offset,
        entered: offset,
        claim: None,
        batch: Batch::default(),
        stop: None,
    };
    let mut committed = offset;
    while committed < end {
        match writer.batch() {
            Ok(()) => committed = writer.at,
            Err(error) => {
                committed = committed.max(writer.entered);
                mapper.abandon(&writer.batch.claims);
                writer.stop = Some(error);
            }
        }
        if let Some(error) = writer.stop.take() {
            return if committed > offset {
                Ok((committed - offset) as usize)
            } else {
                Err(error)
            };
        }
    }
    Ok((end - offset) as usize)
}

/// Claims whose data is being written.
#[derive(Default)]
struct Batch {
    /// The claims that need a commit.
    claims: Vec<Claim>,
    count: usize,
    bytes: u64,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.count >= BATCH_CLAIMS || self.bytes >= BATCH_BYTES
    }
}

struct Writer<'a> {
    disk: &'a Disk,
    mapper: &'a dyn Mapper,
    /// Whether the file grows if the write ends past its end.
    may_grow: bool,
    alignment: Alignment,
    memory: WriteMemory<'a>,
    end: u64,
    /// Next offset in the file.
    at: u64,
    /// After a failed commit: the offset up to which the data is nevertheless written and committed.
    entered: u64,
    /// The claim around `at`, until it is fully written.
    claim: Option<Claim>,
    batch: Batch,
    /// The error that ends the call after this batch.
    stop: Option<Error>,
}

impl<'a> Writer<'a> {
    /// Processes one batch: claims, data, commit.
    fn batch(&mut self) -> Result<()> {
        self.batch = Batch::default();
        let begin = self.at;
        loop {
            let mut store = Store::default();
            let mut bounce = Bounce::new(self.disk.bounce_pool(), &mut store);
            let disk = self.disk;
            let complete =
                disk.pipeline(Op::Write, |pipeline| self.round(pipeline, &mut bounce))?;
            if complete {
                break;
            }
        }
        let new_size =
            Some(self.at).filter(|size| self.may_grow && *size > self.mapper.size_bytes());
        // From here on the mapper itself returns the claims on error.
        let claims = std::mem::take(&mut self.batch.claims);
        if claims.is_empty() && new_size.is_none() {
            return Ok(());
        }
        self.mapper
            .commit(&claims, new_size)
            .inspect_err(|_| self.entered = self.entered_of(begin, claims))
    }

    /// How far a failed commit still committed a batch that begins at `begin` and whose data is all on the
    /// device: up to the first claim that is not mapped, and at most to the end of the file.
    fn entered_of(&self, begin: u64, mut claims: Vec<Claim>) -> u64 {
        claims.sort_unstable_by_key(|claim| claim.file_offset);
        let is_mapped = |claim: &Claim| {
            self.mapper
                .map(claim.file_offset, claim.len)
                .is_ok_and(|mapped| {
                    matches!(
                        mapped.target,
                        Target::Data { device_offset } if device_offset == claim.device_offset
                    )
                })
        };
        let missing = claims.iter().find(|claim| !is_mapped(claim));
        let until = missing.map_or(self.at, |claim| claim.file_offset);
        until.min(self.mapper.size_bytes()).max(begin)
    }

    /// Submits writes until the batch is complete (true) or the bounce buffers are used up (false).
    fn round<'env>(
        &mut self,
        pipeline: &mut Pipeline<'_, '_, 'env>,
        bounce: &mut Bounce<'env>,
    ) -> Result<bool>
    where
        'a: 'env,
    {
        loop {
            if let Some(claim) = self.claim {
                if !self.fill(&claim, pipeline, bounce)? {
                    return Ok(false);
                }
                self.claim = None;
            }
            if self.at >= self.end || self.batch.is_full() {
                return Ok(true);
            }
            pipeline.submit_open();
            match self.next_claim() {
                Ok(claim) if claim.kind != ClaimKind::Overwrite => {
                    let before = shifted(&claim, self.at);
                    let blocks_before = before - before % self.alignment.block;
                    write_zeros(pipeline, claim.device_offset, blocks_before)?;
                }
                Ok(_) => {}
                // The claims before are written and committed; the caller gets a short count.
                Err(error) if self.batch.count > 0 => {
                    self.stop = Some(error);
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Claims the next piece and validates the claim.
    fn next_claim(&mut self) -> Result<Claim> {
        let unit = u64::from(self.mapper.block_bytes().max(1));
        let until = self.at.saturating_add(BATCH_BYTES - self.batch.bytes);
        let whole = until - until % unit;
        let until = if whole > self.at { whole } else { until }.min(self.end);
        let claim = self.mapper.claim(self.at, until - self.at)?;
        if claim.kind != ClaimKind::Overwrite {
            self.batch.claims.push(claim);
        }
        self.batch.count += 1;
        let Some(len) = self.usable(&claim) else {
            let what = format!("invalid claim for file byte {}: {claim:?}", self.at);
            // It is abandoned with its batch.
            self.batch.count = 0;
            return Err(Error::Corrupt(what));
        };
        self.batch.bytes = self.batch.bytes.saturating_add(len);
        self.claim = Some(claim);
        Ok(claim)
    }

    /// The number of bytes that `claim` provides from `at` on, if it meets the contract of [`Mapper::claim`].
    fn usable(&self, claim: &Claim) -> Option<u64> {
        let block = self.alignment.block;
        let skip = self.at.checked_sub(claim.file_offset)?;
        let len = claim.len.checked_sub(skip).filter(|len| *len > 0)?;
        let claim_end = claim.file_offset.checked_add(claim.len)?;
        let device_end = claim.device_offset.checked_add(claim.len)?;
        let same_phase = claim.file_offset % block == claim.device_offset % block;
        let whole_end = device_end.is_multiple_of(block);
        let fits = match claim.kind {
            ClaimKind::Overwrite => whole_end || claim_end >= self.end,
            ClaimKind::New | ClaimKind::Convert => {
                whole_end && claim.device_offset.is_multiple_of(block)
            }
        };
        (same_phase && fits).then_some(len)
    }

    /// Writes the caller's bytes into `claim` from `at` on; false if the bounce buffers are used up before
    /// its end.
    fn fill<'env>(
        &mut self,
        claim: &Claim,
        pipeline: &mut Pipeline<'_, '_, 'env>,
        bounce: &mut Bounce<'env>,
    ) -> Result<bool>
    where
        'a: 'env,
    {
        let claim_end = claim.file_offset + claim.len;
        let data_end = claim_end.min(self.end);
        while self.at < data_end {
            let (address, piece) = self.memory.current();
            let device = shifted(claim, self.at);
            match self
                .alignment
                .step(device, address, piece, data_end - self.at)
            {
                Step::Direct(len) => {
                    pipeline.add(device, Segment::Write(self.memory.take(len)))?;
                    self.at += len as u64;
                }
                Step::Bounce(len) => {
                    let room = bounce.room(self.alignment.block);
                    if room == 0 {
                        return Ok(false);
                    }
                    let into = (device % self.alignment.block) as usize;
                    let len = len.min(room - into);
                    let (start, blocks, into) = self.alignment.around(device, len);
                    let (_, memory) = bounce.take(blocks);
                    self.edges(claim.kind, start, into, len, memory, pipeline)?;
                    self.memory.copy_to(&mut memory[into..into + len]);
                    pipeline.add(start, Segment::Write(memory))?;
                    self.at += len as u64;
                }
            }
        }
        if claim.kind != ClaimKind::Overwrite {
            let behind = shifted(claim, data_end).next_multiple_of(self.alignment.block);
            write_zeros(pipeline, behind, shifted(claim, claim_end))?;
        }
        Ok(true)
    }

    /// Fills the bytes before and after the `len` bytes at `into` in `memory`, which holds the blocks at
    /// device offset `start`: with zeros in a new block, else with the data on the device.
    fn edges(
        &self,
        kind: ClaimKind,
        start: u64,
        into: usize,
        len: usize,
        memory: &mut [u8],
        pipeline: &mut Pipeline<'_, '_, '_>,
    ) -> Result<()> {
        let block = self.alignment.block as usize;
        let last = memory.len() - block;
        let (head, tail) = (into > 0, into + len < memory.len());
        if kind != ClaimKind::Overwrite {
            memory[..into].fill(0);
            memory[into + len..].fill(0);
            return Ok(());
        }
        if !head && !tail {
            return Ok(());
        }
        // The file's bytes end here. Past its size a block may contain anything, but must read as zero once
        // the file has grown over it.
        let file_start = self.at - into as u64;
        let valid = |at: usize| {
            let left = self
                .mapper
                .size_bytes()
                .saturating_sub(file_start + at as u64);
            left.min(block as u64) as usize
        };
        pipeline.submit_open();
        let mut old = |at: usize| -> Result<()> {
            let valid = valid(at);
            let memory = &mut memory[at..at + block];
            if valid > 0 {
                self.disk.read_at(start + at as u64, memory)?;
            }
            memory[valid..].fill(0);
            Ok(())
        };
        if head {
            old(0)?;
        }
        if tail && (last > 0 || !head) {
            old(last)?;
        }
        Ok(())
    }
}

/// The device offset of file offset `at` within `claim`.
fn shifted(claim: &Claim, at: u64) -> u64 {
    claim
        .device_offset
        .wrapping_add(at.wrapping_sub(claim.file_offset))
}

/// Writes zeros to the device range `from..to`, in whole blocks; does nothing if it is empty.
fn write_zeros(pipeline: &mut Pipeline<'_, '_, '_>, mut from: u64, to: u64) -> Result<()> {
    while from < to {
        let zeros = zeros(to - from);
        pipeline.add(from, Segment::Write(zeros))?;
        from += zeros.len() as u64;
    }
    Ok(())
}
