//! Batches of whole blocks, used for metadata: sorted by device offset, merged by a plug into long bios, with
//! memory of any alignment.
//!
//! Memory that the device cannot access directly is copied through an arena of [`ARENA_BYTES`]. Pieces are
//! packed in it in device order, so pieces adjacent on the device are adjacent in the arena. A batch larger
//! than the arena takes several rounds.

use throughline_device::{AlignedPool, Op, PooledBuf, Segment};

use crate::disk::Disk;
use crate::error::{CallerFault, Error, Result};
use crate::limits::BioLimits;

/// Bounce memory of one batch, in bytes.
pub(crate) const ARENA_BYTES: usize = 1 << 20;

/// Arenas kept for the next batch.
const IDLE_ARENAS: usize = 16;

/// The pool of arenas of a disk.
pub(crate) fn arenas(limits: &BioLimits) -> AlignedPool {
    let align = limits.memory_align_bytes.next_power_of_two().max(64);
    let bytes = ARENA_BYTES.max(limits.logical_bytes as usize);
    AlignedPool::new(bytes, align, IDLE_ARENAS)
}

fn is_aligned(memory: &[u8], limits: &BioLimits) -> bool {
    memory
        .as_ptr()
        .addr()
        .is_multiple_of(limits.memory_align_bytes)
}

/// Removes and returns the first `len` bytes of `memory`.
fn take_front<'a>(memory: &mut &'a mut [u8], len: usize) -> &'a mut [u8] {
    let (front, rest) = std::mem::take(memory).split_at_mut(len);
    *memory = rest;
    front
}

/// The largest part of `len` that fits into `room` bytes of an arena, in whole logical blocks.
fn fitting(len: usize, room: usize, limits: &BioLimits) -> usize {
    len.min(room - room % limits.logical_bytes as usize)
}

/// Writes `pieces`, which must be in whole blocks and inside the device. Refuses pieces that overlap.
pub(crate) fn write(disk: &Disk, pieces: &[(u64, &[u8])], fua: bool) -> Result<()> {
    let mut sorted: Vec<(u64, &[u8])> = pieces
        .iter()
        .filter(|(_, memory)| !memory.is_empty())
        .copied()
        .collect();
    sorted.sort_unstable_by_key(|(offset, _)| *offset);
    for pair in sorted.windows(2) {
        let (offset, len) = (pair[1].0, pair[1].1.len() as u64);
        if pair[0].0 + pair[0].1.len() as u64 > offset {
            return Err(BioLimits::refuse(
                Op::Write,
                offset,
                len,
                CallerFault::Overlap,
            ));
        }
    }
    // In rounds: pieces that do not fit into the arena are left for the next one.
    let limits = disk.bio_limits();
    while !sorted.is_empty() {
        let mut later = Vec::new();
        let mut arena: Option<PooledBuf> = None;
        let needs_arena = sorted.iter().any(|(_, memory)| !is_aligned(memory, limits));
        let mut room: &mut [u8] = match needs_arena {
            true => arena.insert(disk.bounce_pool().take()),
            false => &mut [],
        };
        disk.run(Op::Write, fua, |pipeline| {
            for (offset, memory) in sorted.drain(..) {
                if is_aligned(memory, limits) {
                    pipeline.add(offset, Segment::Write(memory))?;
                    pipeline.close_open();
                    continue;
                }
                let len = fitting(memory.len(), room.len(), limits);
                let (now, rest) = memory.split_at(len);
                if !now.is_empty() {
                    let copy = take_front(&mut room, len);
                    copy.copy_from_slice(now);
                    pipeline.add(offset, Segment::Write(copy))?;
                    pipeline.close_open();
                }
                if !rest.is_empty() {
                    later.push((offset + len as u64, rest));
                }
            }
            Ok::<_, Error>(())
        })?;
        sorted = later;
    }
    Ok(())
}

/// Reads `pieces`, which must be in whole blocks and inside the device.
pub(crate) fn read(disk: &Disk, pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
    let limits = disk.bio_limits();
    let mut sorted: Vec<(u64, &mut [u8])> = pieces
        .iter_mut()
        .filter(|(_, memory)| !memory.is_empty())
        .map(|(offset, memory)| (*offset, &mut **memory))
        .collect();
    sorted.sort_unstable_by_key(|(offset, _)| *offset);
    // In rounds: pieces that do not fit into the arena are left for the next one.
    while !sorted.is_empty() {
        let mut later = Vec::new();
        let mut bounced: Vec<(usize, &mut [u8])> = Vec::new();
        let mut arena: Option<PooledBuf> = None;
        let needs_arena = sorted.iter().any(|(_, memory)| !is_aligned(memory, limits));
        let mut room: &mut [u8] = match needs_arena {
            true => arena.insert(disk.bounce_pool().take()),
            false => &mut [],
        };
        disk.run(Op::Read, false, |pipeline| {
            for (offset, memory) in sorted.drain(..) {
                if is_aligned(memory, limits) {
                    pipeline.add(offset, Segment::Read(memory))?;
                    pipeline.close_open();
                    continue;
                }
                let len = fitting(memory.len(), room.len(), limits);
                let (now, rest) = memory.split_at_mut(len);
                if !now.is_empty() {
                    pipeline.add(offset, Segment::Read(take_front(&mut room, len)))?;
                    pipeline.close_open();
                    bounced.push((len, now));
                }
                if !rest.is_empty() {
                    later.push((offset + len as u64, rest));
                }
            }
            Ok::<_, Error>(())
        })?;
        let mut filled: &[u8] = arena.as_deref().unwrap_or_default();
        for (len, memory) in bounced {
            let (here, rest) = filled.split_at(len);
            memory.copy_from_slice(here);
            filled = rest;
        }
        sorted = later;
    }
    Ok(())
}
