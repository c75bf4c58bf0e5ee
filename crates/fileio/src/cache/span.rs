//! A span: an aligned 2 MiB range of a file, with the folios in it. The unit of lookup and locking.
//!
//! Invariants, with the state unlocked:
//! - Folios are ascending and do not overlap; each is aligned to its length.
//! - `dirty_blocks` is the number of dirty blocks in all folios. The span is in the file's list of dirty
//!   spans while it is not 0.
//! - A span without folios is `gone`: it is not in the table, and a thread that still finds it looks it up
//!   again.

use std::ops::Range;
use std::sync::Arc;

use throughline_locks::{Rank, RwLock};

use crate::cache::folio::{Folio, MIN_FOLIO_BYTES};
use crate::cache::space::Core;

/// Bytes of the file in one span.
pub(crate) const SPAN_BYTES: u64 = 2 << 20;

/// See the module documentation.
pub(crate) struct Span {
    pub(crate) number: u64,
    pub(crate) space: Arc<Core>,
    pub(crate) state: RwLock<SpanState>,
}

/// What the span's lock protects: the folios and their contents.
#[derive(Default)]
pub(crate) struct SpanState {
    pub(crate) gone: bool,
    pub(crate) dirty_blocks: usize,
    /// For each folio, its position in the span in units of 4 KiB. A lookup touches only these few cache
    /// lines.
    starts: Vec<u16>,
    /// Boxed, so that an insertion moves little memory.
    #[expect(clippy::vec_box, reason = "an insertion moves all that follow")]
    folios: Vec<Box<Folio>>,
}

impl Span {
    pub(crate) fn new(space: Arc<Core>, number: u64) -> Span {
        Span {
            number,
            space,
            state: RwLock::ranked(Rank::Span, SpanState::default()),
        }
    }

    /// The range of the file that the span covers.
    pub(crate) fn range(&self) -> Range<u64> {
        range_of(self.number)
    }

    /// The key for [`crate::cache::waits::Waits`].
    pub(crate) fn wait_key(&self) -> u64 {
        // Neighbouring spans, and the same span of files opened one after another, should not share a bucket.
        self.number.wrapping_add(self.space.id.wrapping_mul(31))
    }
}

/// Number of the span that contains byte `at` of the file.
pub(crate) fn number_of(at: u64) -> u64 {
    at / SPAN_BYTES
}

/// The range of a span. The last possible span is one byte shorter.
pub(crate) fn range_of(number: u64) -> Range<u64> {
    let start = number * SPAN_BYTES;
    start..start.saturating_add(SPAN_BYTES)
}

fn slot(at: u64) -> u16 {
    (at % SPAN_BYTES / MIN_FOLIO_BYTES) as u16
}

impl SpanState {
    /// The number of folios that begin at or before `at`.
    fn up_to(&self, at: u64) -> usize {
        let slot = slot(at);
        self.starts.partition_point(|start| *start <= slot)
    }

    /// Index of the folio that contains byte `at` of the file.
    fn index(&self, at: u64) -> Option<usize> {
        let index = self.up_to(at).checked_sub(1)?;
        (self.folios[index].end() > at).then_some(index)
    }

    /// The folio that contains byte `at` of the file.
    pub(crate) fn find(&self, at: u64) -> Option<&Folio> {
        self.index(at).map(|index| &*self.folios[index])
    }

    pub(crate) fn find_mut(&mut self, at: u64) -> Option<&mut Folio> {
        self.index(at).map(|index| &mut *self.folios[index])
    }

    /// The folio at `start`, if it still is the one with `id`.
    pub(crate) fn with_id(&mut self, start: u64, id: u64) -> Option<&mut Folio> {
        self.find_mut(start).filter(|folio| folio.id == id)
    }

    /// The gap around `at`, which must not be in a folio. `span` is the range of this span.
    pub(crate) fn gap(&self, at: u64, span: &Range<u64>) -> Range<u64> {
        let next = self.up_to(at);
        let start = next.checked_sub(1).map(|index| self.folios[index].end());
        let end = self.folios.get(next).map(|folio| folio.start);
        start.unwrap_or(span.start)..end.unwrap_or(span.end)
    }

    /// Inserts a folio into a gap.
    pub(crate) fn insert(&mut self, folio: Box<Folio>) -> &mut Folio {
        let index = self.up_to(folio.start);
        self.starts.insert(index, slot(folio.start));
        self.folios.insert(index, folio);
        &mut self.folios[index]
    }

    /// Removes the folio that contains byte `at`.
    pub(crate) fn remove(&mut self, at: u64) -> Option<Box<Folio>> {
        let index = self.index(at)?;
        self.starts.remove(index);
        Some(self.folios.remove(index))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.folios.is_empty()
    }

    /// The folios that overlap `range`, ascending.
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

    /// Removes all folios.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Box<Folio>> + use<> {
        self.starts.clear();
        std::mem::take(&mut self.folios).into_iter()
    }
}
