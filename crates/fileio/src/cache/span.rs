//! A span: 2 MiB of a file, naturally aligned, with the folios in it. The unit of look-up and of locking.
//!
//! Invariants, with the state unlocked:
//! - Folios are ascending and don't overlap; each is aligned to its length.
//! - `dirty_blocks` counts the dirty blocks of all of them, and the file's list of dirty spans has this one while it is not 0.
//! - A span without folios is `gone`: out of the table, and whoever still found it looks again.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::cache::folio::{Folio, MIN_FOLIO_BYTES};
use crate::cache::space::Core;

/// Bytes of the file that one span covers.
pub(crate) const SPAN_BYTES: u64 = 2 << 20;

/// See the module.
pub(crate) struct Span {
    pub(crate) number: u64,
    pub(crate) space: Arc<Core>,
    pub(crate) state: RwLock<SpanState>,
}

/// What a span's lock guards: the folios, and the bytes in them.
#[derive(Default)]
pub(crate) struct SpanState {
    pub(crate) gone: bool,
    pub(crate) dirty_blocks: usize,
    /// Of each folio, its first 4 KiB of the span: a look-up stays in these few cache lines.
    starts: Vec<u16>,
    /// On the heap each, so that putting one in between moves little.
    #[expect(clippy::vec_box, reason = "an insertion moves all that follow")]
    folios: Vec<Box<Folio>>,
}

impl Span {
    pub(crate) fn new(space: Arc<Core>, number: u64) -> Span {
        Span {
            number,
            space,
            state: RwLock::default(),
        }
    }

    /// The file bytes it covers.
    pub(crate) fn range(&self) -> Range<u64> {
        range_of(self.number)
    }

    /// For [`crate::cache::waits::Waits`].
    pub(crate) fn wait_key(&self) -> u64 {
        // Neighbours, and the same span of files opened one after the other, should not share a bucket.
        self.number.wrapping_add(self.space.id.wrapping_mul(31))
    }
}

/// The number of the span with file byte `at`.
pub(crate) fn number_of(at: u64) -> u64 {
    at / SPAN_BYTES
}

/// The file bytes of a span; the last one of all ends a byte short.
pub(crate) fn range_of(number: u64) -> Range<u64> {
    let start = number * SPAN_BYTES;
    start..start.saturating_add(SPAN_BYTES)
}

fn slot(at: u64) -> u16 {
    (at % SPAN_BYTES / MIN_FOLIO_BYTES) as u16
}

impl SpanState {
    /// How many folios begin at or in front of `at`.
    fn up_to(&self, at: u64) -> usize {
        let slot = slot(at);
        self.starts.partition_point(|start| *start <= slot)
    }

    /// The index of the folio that has file byte `at` of this span.
    fn index(&self, at: u64) -> Option<usize> {
        let index = self.up_to(at).checked_sub(1)?;
        (self.folios[index].end() > at).then_some(index)
    }

    /// The folio that has file byte `at` of this span.
    pub(crate) fn find(&self, at: u64) -> Option<&Folio> {
        self.index(at).map(|index| &*self.folios[index])
    }

    pub(crate) fn find_mut(&mut self, at: u64) -> Option<&mut Folio> {
        self.index(at).map(|index| &mut *self.folios[index])
    }

    /// The folio made with `id` at `start`, if it is still there.
    pub(crate) fn with_id(&mut self, start: u64, id: u64) -> Option<&mut Folio> {
        self.find_mut(start).filter(|folio| folio.id == id)
    }

    /// The bytes around `at`, which no folio has, that none has; within `span`, the range of this span.
    pub(crate) fn gap(&self, at: u64, span: &Range<u64>) -> Range<u64> {
        let next = self.up_to(at);
        let start = next.checked_sub(1).map(|index| self.folios[index].end());
        let end = self.folios.get(next).map(|folio| folio.start);
        start.unwrap_or(span.start)..end.unwrap_or(span.end)
    }

    /// Puts a folio into a gap.
    pub(crate) fn insert(&mut self, folio: Box<Folio>) -> &mut Folio {
        let index = self.up_to(folio.start);
        self.starts.insert(index, slot(folio.start));
        self.folios.insert(index, folio);
        &mut self.folios[index]
    }

    /// Takes the folio out that has file byte `at`.
    pub(crate) fn remove(&mut self, at: u64) -> Option<Box<Folio>> {
        let index = self.index(at)?;
        self.starts.remove(index);
        Some(self.folios.remove(index))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.folios.is_empty()
    }

    /// The folios that `range` touches, ascending.
    pub(crate) fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = &Folio> {
        let first = self.first_overlapping(range.start);
        self.folios[first..]
            .iter()
            .map(|folio| &**folio)
            .take_while(move |folio| folio.start < range.end)
    }

    /// As [`SpanState::overlapping`].
    pub(crate) fn overlapping_mut(
        &mut self,
        range: Range<u64>,
    ) -> impl Iterator<Item = &mut Folio> {
        let first = self.first_overlapping(range.start);
        self.folios[first..]
            .iter_mut()
            .map(|folio| &mut **folio)
            .take_while(move |folio| folio.start < range.end)
    }

    fn first_overlapping(&self, at: u64) -> usize {
        self.folios.partition_point(|folio| folio.end() <= at)
    }

    /// Takes all folios out.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Box<Folio>> + use<> {
        self.starts.clear();
        std::mem::take(&mut self.folios).into_iter()
    }
}
