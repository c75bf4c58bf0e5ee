//! Computes where a bio must end.
//!
//! A bio ends at the first of: the size target, the device's largest transfer, the next chunk boundary, the
//! largest number of segments, a gap in memory that the device cannot express. An end forced by the size
//! target, the transfer, the chunk or the number of segments is aligned down to the physical block if that
//! leaves anything, else to the logical block. So two adjacent bios share no physical block, which the device
//! would have to read and modify.

use throughline_device::{Limits, Op};

use crate::error::{CallerFault, Error, Result};

/// Why a bio was closed although its caller had more to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum SplitReason {
    /// The next range is not contiguous on the device.
    Discontinuity,
    /// The size target ([`crate::Disk::bio_target_bytes`]) is reached.
    Target,
    /// The device's largest transfer is reached.
    MaxTransfer,
    /// A chunk boundary of the device (a RAID stripe, a zone) is reached.
    Chunk,
    /// The device's largest number of segments is reached.
    MaxSegments,
    /// The next segment leaves a gap in memory that the device cannot express.
    VirtBoundary,
}

impl SplitReason {
    /// All reasons, in the order of the discriminants.
    pub const ALL: [Self; 6] = [
        Self::Discontinuity,
        Self::Target,
        Self::MaxTransfer,
        Self::Chunk,
        Self::MaxSegments,
        Self::VirtBoundary,
    ];
}

/// The limits of a device, normalised for the builder: every field is usable without further checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BioLimits {
    pub(crate) logical_bytes: u64,
    physical_bytes: u64,
    max_transfer_bytes: u64,
    pub(crate) max_segments: usize,
    chunk_bytes: u64,
    virt_boundary_mask: u64,
    pub(crate) memory_align_bytes: usize,
}

/// `value` rounded down to a multiple of `unit`, which must not be 0.
pub(crate) fn align_down(value: u64, unit: u64) -> u64 {
    value - value % unit
}

impl BioLimits {
    /// Normalises the limits of a device: an invalid value becomes the nearest valid one.
    pub(crate) fn new(limits: &Limits) -> Self {
        let logical_bytes = u64::from(limits.logical_block_bytes.max(1));
        let at_least_a_block =
            |bytes: u32| align_down(u64::from(bytes), logical_bytes).max(logical_bytes);
        Self {
            logical_bytes,
            physical_bytes: at_least_a_block(limits.physical_block_bytes),
            max_transfer_bytes: at_least_a_block(limits.max_transfer_bytes),
            max_segments: usize::try_from(limits.max_segments.max(1)).unwrap_or(usize::MAX),
            chunk_bytes: match limits.chunk_bytes {
                0 => 0,
                chunk => at_least_a_block(chunk),
            },
            virt_boundary_mask: limits.virt_boundary_mask,
            memory_align_bytes: limits.memory_align_bytes.max(1) as usize,
        }
    }

    /// The furthest device byte at which a bio that starts at `start` may end, and the limit that sets it.
    pub(crate) fn end_of_bio(&self, start: u64, target_bytes: u64) -> (u64, SplitReason) {
        let mut end = start.saturating_add(self.max_transfer_bytes);
        let mut reason = SplitReason::MaxTransfer;
        if self.chunk_bytes != 0 {
            let chunk_end = align_down(start, self.chunk_bytes).saturating_add(self.chunk_bytes);
            if chunk_end <= end {
                (end, reason) = (chunk_end, SplitReason::Chunk);
            }
        }
        let target_end = start.saturating_add(target_bytes);
        if target_end < end {
            (end, reason) = (target_end, SplitReason::Target);
        }
        (self.align_end(start, end), reason)
    }

    /// Aligns a forced end of a bio down (see the head of this file), at least one logical block after
    /// `start`.
    pub(crate) fn align_end(&self, start: u64, end: u64) -> u64 {
        let physical = align_down(end, self.physical_bytes);
        if physical > start {
            return physical;
        }
        align_down(end, self.logical_bytes).max(start.saturating_add(self.logical_bytes))
    }

    /// Whether one bio may contain a segment that ends at address `end`, followed by one that starts at
    /// `start`.
    pub(crate) fn may_follow(&self, end: usize, start: usize) -> bool {
        (end as u64 | start as u64) & self.virt_boundary_mask == 0
    }

    /// Refuses a range that is not in whole logical blocks or ends past `end_of_device`.
    pub(crate) fn check_range(
        &self,
        op: Op,
        offset: u64,
        len: u64,
        end_of_device: u64,
    ) -> Result<()> {
        if !offset.is_multiple_of(self.logical_bytes) || !len.is_multiple_of(self.logical_bytes) {
            return Err(Self::refuse(op, offset, len, CallerFault::Misaligned));
        }
        if offset
            .checked_add(len)
            .is_none_or(|end| end > end_of_device)
        {
            return Err(Self::refuse(op, offset, len, CallerFault::OutOfRange));
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn refuse(op: Op, offset_bytes: u64, len_bytes: u64, reason: CallerFault) -> Error {
        Error::Caller {
            op,
            offset_bytes,
            len_bytes,
            reason,
        }
    }
}
