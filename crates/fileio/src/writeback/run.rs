//! A run: adjacent dirty blocks of one file in write-back.
//!
//! ```text
//!   claim ─ data to the stream ─ claim ─ data …   when all is done: commit (or abandon) ─ clean (or dirty)
//! ```
//!
//! Invariant: claims are committed or abandoned when none of the run's data is in flight any more, and before
//! its blocks become clean.

use std::ops::Range;
use std::sync::Arc;

use throughline_block::{Disk, Stream};
use throughline_device::{Op, Pages, Segment};

use crate::cache::{Backing, DirtyRun};
use crate::error::{Error, Result};
use crate::mapper::{Claim, ClaimKind, Mapper};

/// See the module documentation.
pub(super) struct Run {
    pub(super) host: Arc<dyn Backing>,
    dirty: DirtyRun,
    mapper: Option<Box<dyn Mapper>>,
    /// Claims that need a commit.
    claims: Vec<Claim>,
    /// Pieces of memory in flight.
    pending: usize,
    error: Option<Error>,
}

/// The destination of a run's data.
trait Out {
    /// Submits what is open.
    fn submit_open(&mut self);

    /// Adds bytes of `pages` for the device range at `offset`.
    fn add(&mut self, offset: u64, pages: &Arc<Pages>, bytes: Range<usize>);
}

/// The flusher's stream, and the cookie that completions carry.
struct Numbered<'a>(&'a mut Stream, u64);

impl Out for Numbered<'_> {
    fn submit_open(&mut self) {
        self.0.submit_open();
    }

    fn add(&mut self, offset: u64, pages: &Arc<Pages>, bytes: Range<usize>) {
        self.0.add(offset, pages, bytes, self.1);
    }
}

/// Device offsets and their data, kept until everything is claimed: a claim may extend the device, which an
/// open pipeline would not notice.
#[derive(Default)]
struct Kept(Vec<(u64, Segment<'static>)>);

impl Out for Kept {
    fn submit_open(&mut self) {}

    fn add(&mut self, offset: u64, pages: &Arc<Pages>, bytes: Range<usize>) {
        let shared = Segment::Shared {
            pages: Arc::clone(pages),
            from: bytes.start,
            len: bytes.len(),
        };
        self.0.push((offset, shared));
    }
}

/// Result of a run.
pub(super) struct Outcome {
    pub(super) result: Result<()>,
    /// Whether something was committed.
    pub(super) has_committed: bool,
}

impl Run {
    pub(super) fn new(host: Arc<dyn Backing>, dirty: DirtyRun) -> Run {
        Run {
            host,
            dirty,
            mapper: None,
            claims: Vec::new(),
            pending: 0,
            error: None,
        }
    }

    /// The range of the file.
    pub(super) fn range(&self) -> Range<u64> {
        self.dirty.range.clone()
    }

    /// Claims blocks for the run and adds its data to the stream under the cookie `id`. On an error the run
    /// stops where it is and fails.
    pub(super) fn send(&mut self, id: u64, disk: &Disk, stream: &mut Stream) {
        if let Err(error) = self.try_send(disk, &mut Numbered(stream, id)) {
            self.error = Some(error);
        }
    }

    /// As [`Run::send`], on this thread's queue. Nothing is in flight when this returns.
    pub(super) fn write(&mut self, disk: &Disk) {
        let mut kept = Kept::default();
        let written = self.try_send(disk, &mut kept).and_then(|()| {
            disk.pipeline(Op::Write, |out| {
                let mut pieces = kept.0.into_iter();
                pieces.try_for_each(|(offset, piece)| Ok(out.add(offset, piece)?))
            })
        });
        self.pending = 0;
        self.error = written.err();
    }

    fn try_send(&mut self, disk: &Disk, out: &mut dyn Out) -> Result<()> {
        let Range { start, end } = self.dirty.range;
        // The calls below may read the mapping: submit what is open first.
        out.submit_open();
        let mapper = Arc::clone(&self.host).writer(start, end - start)?;
        let mapper = self.mapper.insert(mapper);
        let (mut at, mut piece) = (start, 0);
        while at < end {
            out.submit_open();
            let claim = mapper.claim(at, end - at)?;
            let claim_end = claim.file_offset.saturating_add(claim.len);
            if claim.kind != ClaimKind::Overwrite {
                self.claims.push(claim);
            }
            if claim.file_offset > at || claim_end <= at {
                return Err(Error::Corrupt(format!(
                    "file byte {at} was claimed as {} to {claim_end}",
                    claim.file_offset
                )));
            }
            let data_end = claim_end.min(end);
            if claim.kind != ClaimKind::Overwrite {
                zero_around(disk, &claim, at..data_end)?;
            }
            while at < data_end {
                let Some(from) = self.dirty.pieces.get(piece) else {
                    return Err(Error::Corrupt(format!(
                        "nothing to write at file byte {at}"
                    )));
                };
                let skip = (at - from.file_offset) as usize;
                let left = from.range.len() - skip;
                let len = left.min((data_end - at) as usize);
                let bytes = from.range.start + skip..from.range.start + skip + len;
                let device_offset = claim.device_offset + (at - claim.file_offset);
                out.add(device_offset, &from.pages, bytes);
                self.pending += 1;
                at += len as u64;
                piece += usize::from(len == left);
            }
        }
        Ok(())
    }

    /// Records a completion of one piece.
    pub(super) fn piece_ended(&mut self, result: throughline_block::Result<()>) {
        self.pending -= 1;
        if let Err(error) = result {
            self.error.get_or_insert(error.into());
        }
    }

    /// Whether none of its data is in flight.
    pub(super) fn has_ended(&self) -> bool {
        self.pending == 0
    }

    /// Commits or abandons the claims and makes the blocks clean, or dirty again. Nothing may be in flight.
    pub(super) fn finish(mut self) -> Outcome {
        debug_assert!(self.has_ended());
        let result = match self.error.take() {
            None => self.commit(),
            Some(error) => {
                if let Some(mapper) = &self.mapper {
                    mapper.abandon(&self.claims);
                }
                Err(error)
            }
        };
        let has_committed = matches!(result, Ok(true));
        // Unused claims and reservations are returned.
        drop(self.mapper.take());
        if result.is_ok() {
            let unit_bytes = u64::from(self.host.block_bytes().max(1));
            let is_new = |claim: &&Claim| claim.kind == ClaimKind::New;
            let new_bytes: u64 = self.claims.iter().filter(is_new).map(|c| c.len).sum();
            let unused = self
                .dirty
                .reserved_units
                .saturating_sub(new_bytes / unit_bytes);
            if unused > 0 {
                self.host.unreserve(unused);
            }
        }
        let space = self.host.space();
        space.write_back_ended(&*self.host, self.dirty, result.is_ok());
        Outcome {
            result: result.map(drop),
            has_committed,
        }
    }

    /// Commits the claims and the new size, if there are any.
    fn commit(&self) -> Result<bool> {
        let size = self.dirty.range.end.min(self.dirty.file_size);
        let new_size = Some(size).filter(|size| *size > self.host.size_bytes());
        let Some(mapper) = &self.mapper else {
            return Ok(false);
        };
        if self.claims.is_empty() && new_size.is_none() {
            return Ok(false);
        }
        // From here on the mapper itself returns the claims on error.
        mapper.commit(&self.claims, new_size).map(|()| true)
    }
}

/// Zeroes what a new claim covers around the run. Runs consist of whole allocation units, so this is for
/// mappers whose units are larger than reported. It waits for the device.
fn zero_around(disk: &Disk, claim: &Claim, data: Range<u64>) -> Result<()> {
    let before = data.start - claim.file_offset;
    let behind = (claim.file_offset + claim.len) - data.end;
    if before > 0 {
        disk.write_zeroes(claim.device_offset, before)?;
    }
    if behind > 0 {
        disk.write_zeroes(claim.device_offset + claim.len - behind, behind)?;
    }
    Ok(())
}
