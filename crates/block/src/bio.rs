//! A bio: one operation on one range of the device, with its memory. Plain data.
//!
//! Invariants: `len_bytes` is the sum of the segments' lengths, and all segments are of the operation's kind.
//! A bio completes exactly once: submitting consumes it. Its memory then returns to the scope that lent it,
//! or, if shared, is released.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use throughline_device::{Op, Segment};

use crate::events::BioInfo;
use crate::purpose::Purpose;

/// Memory of a bio. Up to four segments are inline, so an ordinary bio needs no allocation.
pub(crate) type Segments<'env> = SmallVec<[Segment<'env>; 4]>;

/// A read or write to be submitted.
#[derive(Debug)]
pub(crate) struct Bio<'env> {
    pub(crate) op: Op,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
    pub(crate) segments: Segments<'env>,
    /// When its first byte was added; `None` without listeners.
    pub(crate) opened_at: Option<Instant>,
}

impl<'env> Bio<'env> {
    pub(crate) fn new(op: Op, offset_bytes: u64, opened_at: Option<Instant>) -> Self {
        Self {
            op,
            offset_bytes,
            len_bytes: 0,
            segments: Segments::new(),
            opened_at,
        }
    }

    /// The device byte after its last one.
    pub(crate) fn end(&self) -> u64 {
        self.offset_bytes + self.len_bytes
    }

    /// The memory address after its last segment.
    pub(crate) fn memory_end(&self) -> usize {
        self.segments
            .last()
            .map_or(0, |last| last.addr() + last.len())
    }

    pub(crate) fn push(&mut self, segment: Segment<'env>) {
        self.len_bytes += segment.len() as u64;
        self.segments.push(segment);
    }

    /// Appends `next`, which begins where `self` ends.
    pub(crate) fn append(&mut self, next: Bio<'env>) {
        debug_assert_eq!((self.end(), self.op), (next.offset_bytes, next.op));
        self.len_bytes += next.len_bytes;
        self.segments.extend(next.segments);
    }

    /// Splits the bio at device byte `at`, inside it, and returns the rest.
    pub(crate) fn split_off(&mut self, at: u64) -> Bio<'env> {
        let mut tail = Bio::new(self.op, at, self.opened_at);
        let mut keep = at - self.offset_bytes;
        for segment in std::mem::take(&mut self.segments) {
            let here = keep.min(segment.len() as u64);
            let (head, rest) = split_segment(segment, here as usize);
            keep -= here;
            if !head.is_empty() {
                self.segments.push(head);
            }
            if !rest.is_empty() {
                tail.push(rest);
            }
        }
        self.len_bytes = at - self.offset_bytes;
        tail
    }

    pub(crate) fn info(&self) -> BioInfo {
        BioInfo {
            op: self.op,
            offset_bytes: self.offset_bytes,
            len_bytes: self.len_bytes,
            segments: self.segments.len(),
            purpose: Purpose::present(),
        }
    }
}

/// Splits `segment` at byte `at`, at most its length.
pub(crate) fn split_segment(segment: Segment<'_>, at: usize) -> (Segment<'_>, Segment<'_>) {
    match segment {
        Segment::Read(memory) => {
            let (head, tail) = memory.split_at_mut(at);
            (Segment::Read(head), Segment::Read(tail))
        }
        Segment::Write(memory) => {
            let (head, tail) = memory.split_at(at);
            (Segment::Write(head), Segment::Write(tail))
        }
        Segment::Shared { pages, from, len } => {
            let tail = Segment::Shared {
                pages: Arc::clone(&pages),
                from: from + at,
                len: len - at,
            };
            let len = at;
            (Segment::Shared { pages, from, len }, tail)
        }
    }
}
