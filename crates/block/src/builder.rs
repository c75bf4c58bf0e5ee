//! The builder turns device ranges and memory into bios.
//!
//! A bio is closed only when the next range is not contiguous on the device, when a limit of the device or
//! the size target is reached, or when the caller has no more. How the ranges were mapped (by one mapping
//! call or many, from which mapping block) does not matter; founding report 1 shows what happens otherwise. A
//! full bio is emitted at once, so that the device works on it while the rest is built (founding report 4).
//!
//! ```text
//!  add(device range, memory)…      ─┐   open bio    ┌─►  close: not contiguous, or a limit
//!  contiguous? still fits?         ─┴─► grows  ─────┴─►  full:  emitted at once
//! ```

use std::time::Instant;

use throughline_device::{Op, Segment};

use crate::bio::{Bio, split_segment};
use crate::limits::{BioLimits, SplitReason};

/// Receives the bios of a builder.
pub(crate) trait Sink<'env> {
    /// A finished bio.
    fn bio(&mut self, bio: Bio<'env>);
    /// The bio that ends at device byte `offset_bytes` was closed although more followed.
    fn split(&mut self, offset_bytes: u64, reason: SplitReason);
    /// The time, if there are listeners.
    fn now(&self) -> Option<Instant>;
}

/// Builds bios of one operation.
pub(crate) struct Builder<'env> {
    op: Op,
    limits: BioLimits,
    target_bytes: u64,
    open: Option<Bio<'env>>,
    /// The furthest end of the open bio, and the reason.
    limit: (u64, SplitReason),
    /// The end of a bio emitted because it was full, and the reason. It counts as split once another range
    /// follows.
    filled: Option<(u64, SplitReason)>,
}

impl<'env> Builder<'env> {
    /// `target_bytes` is the size that bios do not exceed.
    pub(crate) fn new(op: Op, limits: BioLimits, target_bytes: u64) -> Self {
        Self {
            op,
            limits,
            target_bytes,
            open: None,
            limit: (0, SplitReason::Target),
            filled: None,
        }
    }

    /// Changes the target size from the next bio on.
    pub(crate) fn set_target_bytes(&mut self, target_bytes: u64) {
        self.target_bytes = target_bytes;
    }

    /// Adds `segment` for the device bytes from `offset` on. The range must be in whole logical blocks and
    /// inside the device.
    pub(crate) fn add(&mut self, offset: u64, segment: Segment<'env>, sink: &mut impl Sink<'env>) {
        let (mut offset, mut rest) = (offset, segment);
        while !rest.is_empty() {
            self.close_unless_appendable(offset, rest.addr(), sink);
            let bio = match &mut self.open {
                Some(bio) => bio,
                None => {
                    self.limit = self.limits.end_of_bio(offset, self.target_bytes);
                    self.open.insert(Bio::new(self.op, offset, sink.now()))
                }
            };
            let room = self.limit.0 - offset;
            let here = room.min(rest.len() as u64) as usize;
            let (head, tail) = split_segment(rest, here);
            offset += head.len() as u64;
            rest = tail;
            bio.push(head);
            if offset == self.limit.0 {
                self.finish(sink);
                self.filled = Some(self.limit);
            }
        }
    }

    /// Emits the open bio, if there is one.
    pub(crate) fn finish(&mut self, sink: &mut impl Sink<'env>) {
        if let Some(bio) = self.take_open() {
            sink.bio(bio);
        }
    }

    /// Returns the open bio, if there is one, instead of emitting it.
    pub(crate) fn take_open(&mut self) -> Option<Bio<'env>> {
        self.filled = None;
        self.open.take()
    }

    /// Closes the open bio if memory at `address` for device byte `offset` cannot be appended to it.
    fn close_unless_appendable(&mut self, offset: u64, address: usize, sink: &mut impl Sink<'env>) {
        if let Some((end, reason)) = self.filled.take() {
            let reason = if end == offset {
                reason
            } else {
                SplitReason::Discontinuity
            };
            sink.split(end, reason);
        }
        while let Some(bio) = &mut self.open {
            let end = bio.end();
            let (reason, cut) = if end != offset {
                (SplitReason::Discontinuity, end)
            } else if bio.segments.len() >= self.limits.max_segments {
                (
                    SplitReason::MaxSegments,
                    self.limits.align_end(bio.offset_bytes, end),
                )
            } else if !self.limits.may_follow(bio.memory_end(), address) {
                (SplitReason::VirtBoundary, end)
            } else {
                return;
            };
            // Moving the end back to a whole physical block leaves a tail, to which the new segment may be
            // appended.
            let tail = (cut < end).then(|| bio.split_off(cut));
            sink.split(cut, reason);
            self.finish(sink);
            if let Some(tail) = tail {
                self.limit = self.limits.end_of_bio(tail.offset_bytes, self.target_bytes);
                self.open = Some(tail);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use throughline_device::Limits;
    use throughline_testkit::cases::config;

    use super::*;

    /// The calls of the builder, in order.
    #[derive(Default)]
    struct Recorder<'env> {
        bios: Vec<Bio<'env>>,
        /// Splits: number of bios emitted before, offset, reason.
        splits: Vec<(usize, u64, SplitReason)>,
    }

    impl<'env> Sink<'env> for Recorder<'env> {
        fn bio(&mut self, bio: Bio<'env>) {
            self.bios.push(bio);
        }

        fn split(&mut self, offset_bytes: u64, reason: SplitReason) {
            self.splits.push((self.bios.len(), offset_bytes, reason));
        }

        fn now(&self) -> Option<Instant> {
            None
        }
    }

    fn limits() -> impl Strategy<Value = Limits> {
        let powers = (9_u32..=12, 0_u32..=3, 0_u32..=6);
        (
            powers,
            1_u32..=6,
            prop_oneof![Just(0_u32), Just(6), Just(7)],
            any::<bool>(),
        )
            .prop_map(
                |((logical, physical, transfer), max_segments, chunk, gaps)| Limits {
                    logical_block_bytes: 1 << logical,
                    physical_block_bytes: 1 << (logical + physical),
                    max_transfer_bytes: 3 << (logical + transfer),
                    max_segments,
                    chunk_bytes: if chunk == 0 {
                        0
                    } else {
                        1 << (logical + chunk)
                    },
                    virt_boundary_mask: if gaps { 0 } else { 4095 },
                    ..Limits::default()
                },
            )
    }

    /// (gap before, length, gap in memory), each in logical blocks.
    type Ranges = Vec<(u8, u8, bool)>;

    fn ranges() -> impl Strategy<Value = Ranges> {
        prop::collection::vec(
            (
                prop_oneof![3 => Just(0_u8), 1 => 1_u8..5],
                1_u8..40,
                any::<bool>(),
            ),
            1..20,
        )
    }

    /// The device offset and memory address of each block.
    fn blocks_of<'a>(
        pieces: impl Iterator<Item = (u64, usize, usize)> + 'a,
        block: usize,
    ) -> impl Iterator<Item = (u64, usize)> + 'a {
        pieces.flat_map(move |(offset, address, len)| {
            (0..len / block).map(move |i| (offset + (i * block) as u64, address + i * block))
        })
    }

    fn pieces_of<'a>(bio: &'a Bio<'_>) -> impl Iterator<Item = (u64, usize, usize)> + 'a {
        let mut at = bio.offset_bytes;
        bio.segments.iter().map(move |segment| {
            let here = (at, segment.addr(), segment.len());
            at += segment.len() as u64;
            here
        })
    }

    fn check_limits(bio: &Bio<'_>, limits: &Limits, target: u64) {
        let logical = u64::from(limits.logical_block_bytes);
        assert!(bio.len_bytes > 0 && bio.len_bytes.is_multiple_of(logical));
        assert!(bio.len_bytes <= u64::from(limits.max_transfer_bytes));
        assert!(
            bio.len_bytes <= target.max(logical),
            "{} > {target}",
            bio.len_bytes
        );
        assert!(bio.segments.len() <= limits.max_segments as usize);
        let chunk = u64::from(limits.chunk_bytes);
        assert!(chunk == 0 || bio.offset_bytes / chunk == (bio.end() - 1) / chunk);
        for pair in bio.segments.windows(2) {
            let end = pair[0].addr() + pair[0].len();
            assert_eq!((end | pair[1].addr()) as u64 & limits.virt_boundary_mask, 0);
        }
    }

    /// A bio ends only for the given reason, and at the place that this reason dictates.
    fn check_reason(
        before: &Bio<'_>,
        after: &Bio<'_>,
        reason: SplitReason,
        limits: &Limits,
        target: u64,
    ) {
        let end = before.end();
        let (logical, physical) = (
            u64::from(limits.logical_block_bytes),
            u64::from(limits.physical_block_bytes),
        );
        let forced_to = |furthest: u64| {
            let whole = furthest - furthest % physical;
            if whole > before.offset_bytes {
                whole
            } else {
                furthest - furthest % logical
            }
        };
        let contiguous = end == after.offset_bytes;
        match reason {
            SplitReason::Discontinuity => assert!(!contiguous),
            SplitReason::Target => {
                let furthest = before.offset_bytes + target.max(logical);
                assert_eq!(end, forced_to(furthest).max(before.offset_bytes + logical));
            }
            SplitReason::MaxTransfer => {
                assert_eq!(
                    end,
                    forced_to(before.offset_bytes + u64::from(limits.max_transfer_bytes))
                );
            }
            SplitReason::Chunk => assert_eq!(
                end,
                forced_to(end.next_multiple_of(u64::from(limits.chunk_bytes)))
            ),
            SplitReason::MaxSegments => {
                let could = before.segments.len() + after.segments.len();
                assert!(contiguous && could >= limits.max_segments as usize);
            }
            SplitReason::VirtBoundary => {
                let next = after.segments[0].addr();
                assert!(
                    contiguous
                        && (before.memory_end() | next) as u64 & limits.virt_boundary_mask != 0
                );
            }
        }
    }

    proptest! {
        #![proptest_config(config(512))]

        #[test]
        fn conserves_bytes_and_keeps_limits(
            limits in limits(),
            ranges in ranges(),
            target_blocks in 0_u64..100
        ) {
            let block = limits.logical_block_bytes as usize;
            let target = target_blocks * block as u64 + 1;
            let bytes = ranges.iter().map(|r| (usize::from(r.1) + 1) * block).sum();
            let memory = throughline_device::AlignedBuf::zeroed(bytes, 4096);
            let (mut left, mut offset) = (&memory[..], 0_u64);
            let mut asked = Vec::new();
            let mut builder = Builder::new(Op::Write, BioLimits::new(&limits), target);
            let mut seen = Recorder::default();
            for (gap, len, memory_gap) in ranges {
                offset += u64::from(gap) * block as u64;
                left = &left[usize::from(memory_gap) * block..];
                let (piece, rest) = left.split_at(usize::from(len) * block);
                left = rest;
                asked.push((offset, piece.as_ptr().addr(), piece.len()));
                builder.add(offset, Segment::Write(piece), &mut seen);
                offset += piece.len() as u64;
            }
            builder.finish(&mut seen);

            let got = blocks_of(seen.bios.iter().flat_map(pieces_of), block);
            prop_assert!(got.eq(blocks_of(asked.iter().copied(), block)), "bytes lost or out of order");
            for bio in &seen.bios {
                check_limits(bio, &limits, target);
            }
            prop_assert_eq!(seen.splits.len() + 1, seen.bios.len(), "each end but the last has a reason");
            for (pair, split) in seen.bios.windows(2).zip(&seen.splits) {
                prop_assert_eq!(pair[0].end(), split.1);
                check_reason(&pair[0], &pair[1], split.2, &limits, target);
            }
        }
    }

    #[test]
    fn one_range_takes_as_few_bios_as_the_target_allows() {
        let limits = Limits {
            physical_block_bytes: 512,
            ..Limits::default()
        };
        let memory = vec![0_u8; 4 << 20];
        for target in [512, 4096, 100 * 512, 256 << 10, 1 << 20] {
            let mut seen = Recorder::default();
            let mut builder = Builder::new(Op::Write, BioLimits::new(&limits), target);
            // The range is mapped in many contiguous pieces.
            for (i, piece) in memory.chunks(48 << 10).enumerate() {
                builder.add(
                    (48 << 10) * (i as u64 + 1),
                    Segment::Write(piece),
                    &mut seen,
                );
            }
            builder.finish(&mut seen);
            assert_eq!(
                seen.bios.len() as u64,
                (memory.len() as u64).div_ceil(target),
                "target {target}"
            );
        }
    }

    #[test]
    fn a_full_bio_goes_before_the_rest_is_known() {
        let memory = vec![0_u8; 64 << 10];
        let mut seen = Recorder::default();
        let mut builder = Builder::new(Op::Write, BioLimits::new(&Limits::default()), 32 << 10);
        builder.add(0, Segment::Write(&memory), &mut seen);
        assert_eq!(
            seen.bios.len(),
            2,
            "both are full and emitted before finish"
        );
    }
}
