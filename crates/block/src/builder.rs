//! The builder: mapped device ranges and memory in, bios out.
//!
//! A bio is closed only when what follows lies elsewhere on the device, when a limit of the device or the size target
//! is reached, or when the caller has no more. How the range was found (one mapping call or many, which block of the
//! map it came from) plays no part: founding report 1 is what happens otherwise. And it is closed as soon as that is
//! known, so that the device works on the first bio while the rest is built: founding report 4.
//!
//! ```text
//!  add(device range, memory)…      ─┐   open bio    ┌─►  close: contiguous no more, or a limit
//!  physically next? still fits?    ─┴─► grows  ─────┴─►  full:  emitted at once
//! ```

use std::time::Instant;

use throughline_device::{Op, Segment};

use crate::bio::{Bio, split_segment};
use crate::limits::{BioLimits, SplitReason};

/// Takes what the builder makes.
pub(crate) trait Sink<'env> {
    /// A finished bio.
    fn bio(&mut self, bio: Bio<'env>);
    /// The bio before device byte `offset_bytes` was closed although more followed.
    fn split(&mut self, offset_bytes: u64, reason: SplitReason);
    /// The time, if anybody wants to know it.
    fn now(&self) -> Option<Instant>;
}

/// Builds bios of one operation.
pub(crate) struct Builder<'env> {
    op: Op,
    limits: BioLimits,
    target_bytes: u64,
    open: Option<Bio<'env>>,
    /// Where the open bio must end, and why.
    limit: (u64, SplitReason),
    /// A bio that was emitted because it was full: it counts as split once something follows it.
    filled: Option<(u64, SplitReason)>,
}

impl<'env> Builder<'env> {
    /// `target_bytes` is the size that bios should not exceed.
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

    /// Adds `segment` for the device bytes from `offset` on. Both are in whole logical blocks and inside the device.
    pub(crate) fn add(&mut self, offset: u64, segment: Segment<'env>, sink: &mut impl Sink<'env>) {
        let (mut offset, mut rest) = (offset, segment);
        while !rest.is_empty() {
            self.make_way(offset, rest.addr(), sink);
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
        self.filled = None;
        if let Some(bio) = self.open.take() {
            sink.bio(bio);
        }
    }

    /// Closes what is open where memory at `address` for device byte `offset` cannot be appended to it.
    fn make_way(&mut self, offset: u64, address: usize, sink: &mut impl Sink<'env>) {
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
            // Moving the end back to a whole physical block leaves a tail, which what follows may join.
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
