//! The read half of direct I/O.

use std::io::IoSliceMut;

use throughline_block::{Disk, Pipeline};
use throughline_device::{Op, Segment};

use super::bounce::{self, Bounce, Place, Store};
use super::memory::{Alignment, ReadMemory, Step};
use crate::error::{Error, Result};
use crate::mapper::{Map, MappedExtent, Target};

/// Fills `bufs` in order from byte `offset` of the file. Returns the number of bytes read, less than
/// requested only at the end of the file. Holes and unwritten ranges read as zero.
///
/// # Errors
/// Those of the mapper and the device; the contents of `bufs` are then undefined.
pub fn read(
    disk: &Disk,
    mapper: &dyn Map,
    offset: u64,
    bufs: &mut [IoSliceMut<'_>],
) -> Result<usize> {
    let asked = bufs
        .iter()
        .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
    let end = offset.saturating_add(asked).min(mapper.size_bytes());
    if end <= offset {
        return Ok(0);
    }
    let mut reader = Reader {
        mapper,
        alignment: Alignment::of(disk),
        memory: ReadMemory::new(bufs),
        at: offset,
        end,
    };
    while reader.at < end {
        let mut store = Store::default();
        let mut copies = Vec::new();
        let mut bounce = Bounce::new(disk.bounce_pool(), &mut store);
        disk.pipeline(Op::Read, |pipeline| {
            reader.round(pipeline, &mut bounce, &mut copies)
        })?;
        for Copy { from, to } in copies {
            to.copy_from_slice(bounce::bytes_at(&store, from, to.len()));
        }
    }
    Ok((end - offset) as usize)
}

/// A copy out of a bounce buffer, to be done when the round is over.
struct Copy<'m> {
    from: Place,
    to: &'m mut [u8],
}

struct Reader<'a, 'm, 'b> {
    mapper: &'a dyn Map,
    alignment: Alignment,
    memory: ReadMemory<'m, 'b>,
    /// Next offset in the file.
    at: u64,
    end: u64,
}

impl<'m> Reader<'_, 'm, '_> {
    /// Submits reads until everything is submitted or the bounce buffers are used up.
    fn round<'env>(
        &mut self,
        pipeline: &mut Pipeline<'_, '_, 'env>,
        bounce: &mut Bounce<'env>,
        copies: &mut Vec<Copy<'m>>,
    ) -> Result<()>
    where
        'm: 'env,
    {
        while self.at < self.end {
            pipeline.submit_open();
            let extent = self.mapper.map(self.at, self.end - self.at)?;
            let (len, device) = placed(&extent, self.at)?;
            let extent_end = self.at.saturating_add(len).min(self.end);
            let Some(device) = device else {
                self.zero(extent_end);
                continue;
            };
            let shift = device.wrapping_sub(self.at);
            while self.at < extent_end {
                let (address, piece) = self.memory.current();
                let device = self.at.wrapping_add(shift);
                match self
                    .alignment
                    .step(device, address, piece, extent_end - self.at)
                {
                    Step::Direct(len) => {
                        pipeline.add(device, Segment::Read(self.memory.take(len)))?;
                        self.at += len as u64;
                    }
                    Step::Bounce(len) => {
                        let room = bounce.room(self.alignment.block);
                        if room == 0 {
                            return Ok(());
                        }
                        let into = (device % self.alignment.block) as usize;
                        let len = len.min(room - into);
                        let (start, blocks, into) = self.alignment.around(device, len);
                        let (place, memory) = bounce.take(blocks);
                        pipeline.add(start, Segment::Read(memory))?;
                        self.copy_later(place.plus(into), len, copies);
                    }
                }
            }
        }
        Ok(())
    }

    fn zero(&mut self, to: u64) {
        while self.at < to {
            let most = usize::try_from(to - self.at).unwrap_or(usize::MAX);
            let memory = self.memory.take(most);
            memory.fill(0);
            self.at += memory.len() as u64;
        }
    }

    fn copy_later(&mut self, mut from: Place, len: usize, copies: &mut Vec<Copy<'m>>) {
        let mut left = len;
        while left > 0 {
            let to = self.memory.take(left);
            left -= to.len();
            let next = from.plus(to.len());
            copies.push(Copy { from, to });
            from = next;
        }
        self.at += len as u64;
    }
}

/// The number of bytes of `extent` from file offset `at` on, and their device offset; `None`: they are zero.
fn placed(extent: &MappedExtent, at: u64) -> Result<(u64, Option<u64>)> {
    let skip = at.checked_sub(extent.file_offset);
    let len = skip
        .and_then(|skip| extent.len.checked_sub(skip))
        .filter(|len| *len > 0);
    let device = match extent.target {
        Target::Hole | Target::Unwritten { .. } => None,
        Target::Data { device_offset } => {
            Some(skip.and_then(|skip| device_offset.checked_add(skip)))
        }
    };
    match (len, device) {
        (Some(len), None) => Ok((len, None)),
        (Some(len), Some(Some(device))) if device.checked_add(len).is_some() => {
            Ok((len, Some(device)))
        }
        _ => Err(Error::Corrupt(format!(
            "invalid mapping at file byte {at}: {extent:?}"
        ))),
    }
}
