//! Dropping what is cached: because the file loses it, because it is not wanted any more, because the file is let go.

use std::ops::Range;
use std::sync::Arc;

use crate::cache::folio::Folio;
use crate::cache::span::{Span, SpanState};
use crate::cache::{AddressSpace, Backing};

/// What dropped blocks held.
#[derive(Default)]
struct Dropped {
    dirty_blocks: usize,
    reserved_units: u64,
    queued: usize,
    #[expect(clippy::vec_box, reason = "as they come out of their spans")]
    folios: Vec<Box<Folio>>,
}

impl AddressSpace {
    /// Drops what is cached of the range: clean blocks, and dirty ones too, whose promises and dirty bytes are given back.
    /// Blocks only partly in the range are kept, with the bytes in the range made zero: such a block is dirty if it was,
    /// and if it was not, those bytes are the caller's to make zero on the device, unless they are behind the file's size.
    /// Where the range has the file's end and the file is not cut there, the size is the caller's to commit: with the dirty
    /// blocks goes what would have done it. The file's lock is held exclusively and the space is frozen, so nothing is filled or under write-back.
    pub fn discard(&self, host: &dyn Backing, range: Range<u64>) {
        for number in self.spans(&range) {
            let mut dropped = Dropped::default();
            self.with_present(number, |span, state| {
                self.discard_in(span, state, &range, &mut dropped);
            });
            let bytes = (dropped.dirty_blocks as u64) << self.core.block_shift;
            if bytes > 0 {
                self.core.undirtied(bytes);
                self.cache.throttle.release(bytes);
            }
            if dropped.reserved_units > 0 {
                host.unreserve(dropped.reserved_units);
            }
            self.let_go(dropped);
        }
        self.cache.memory_freed();
    }

    fn discard_in(
        &self,
        span: &Arc<Span>,
        state: &mut SpanState,
        range: &Range<u64>,
        dropped: &mut Dropped,
    ) {
        let mut empty = Vec::new();
        let before = dropped.dirty_blocks;
        for folio in state.overlapping_mut(range.clone()) {
            zero_edges(folio, range, |bytes| self.cache.pool.take(bytes));
            let whole = whole_blocks_in(folio, range);
            dropped.dirty_blocks += folio.dirty.count(whole.clone());
            dropped.reserved_units += folio.reserved.count(whole.clone()) as u64;
            folio.dirty.remove(whole.clone());
            folio.reserved.remove(whole.clone());
            folio.up_to_date.remove(whole);
            if folio.up_to_date.is_empty() && folio.is_idle() {
                empty.push(folio.start);
            }
        }
        let dirty_blocks = dropped.dirty_blocks - before;
        state.dirty_blocks -= dirty_blocks;
        if dirty_blocks > 0 && state.dirty_blocks == 0 {
            self.core.list_dirty(span.number, false);
        }
        self.take_out(span, state, &empty, dropped);
    }

    /// Takes folios out, by their starts.
    fn take_out(
        &self,
        span: &Arc<Span>,
        state: &mut SpanState,
        starts: &[u64],
        dropped: &mut Dropped,
    ) {
        let first = dropped.folios.len();
        dropped
            .folios
            .extend(starts.iter().filter_map(|start| state.remove(*start)));
        dropped.queued += dropped.folios[first..]
            .iter()
            .filter(|folio| folio.queued)
            .count();
        self.cache.removed(span, state, &dropped.folios[first..]);
    }

    fn let_go(&self, dropped: Dropped) {
        drop(dropped.folios);
        self.cache.unqueued(dropped.queued);
    }

    /// Drops clean folios of the range, as advice (`DONTNEED`); dirty ones stay.
    pub fn drop_clean(&self, range: Range<u64>) {
        for number in self.spans(&range) {
            let mut dropped = Dropped::default();
            self.with_present(number, |span, state| {
                let idle = |folio: &&Folio| {
                    folio.is_idle() && range.start <= folio.start && folio.end() <= range.end
                };
                let starts: Vec<u64> = state
                    .overlapping(range.clone())
                    .filter(idle)
                    .map(|folio| folio.start)
                    .collect();
                self.take_out(span, state, &starts, &mut dropped);
            });
            self.let_go(dropped);
        }
        self.cache.memory_freed();
    }

    /// The file is let go: nobody reads, writes or flushes it any more.
    pub(crate) fn drop_all(&self) {
        for number in self.spans(&(0..u64::MAX)) {
            let mut dropped = Dropped::default();
            self.with_present(number, |span, state| {
                dropped.folios.extend(state.take_all());
                dropped.queued += dropped.folios.iter().filter(|folio| folio.queued).count();
                self.cache.removed(span, state, &dropped.folios);
            });
            self.let_go(dropped);
        }
        let dirty = self.dirty_bytes();
        if dirty > 0 {
            self.cache.throttle.release(dirty);
        }
        self.cache.memory_freed();
    }
}

/// The blocks of a folio that are in the range to their ends.
fn whole_blocks_in(folio: &Folio, range: &Range<u64>) -> Range<usize> {
    let touched = folio.blocks(range);
    let bytes = folio.bytes(&touched);
    let start = touched.start + usize::from(bytes.start < range.start);
    let end = touched.end - usize::from(range.end < bytes.end && touched.end > 0);
    start.min(end)..end
}

/// Makes zero what the range has of blocks that are only partly in it.
fn zero_edges(
    folio: &mut Folio,
    range: &Range<u64>,
    take: impl FnOnce(usize) -> Option<throughline_device::Pages>,
) {
    let touched = folio.blocks(range);
    if touched.is_empty() || touched == whole_blocks_in(folio, range) {
        return;
    }
    let edges = [
        touched.start..touched.start + 1,
        touched.end - 1..touched.end,
    ];
    let places = edges.map(|edge| {
        let bytes = folio.bytes(&edge);
        let here = bytes.start.max(range.start)..bytes.end.min(range.end);
        let is_part = here != bytes && folio.up_to_date.contains(edge.start);
        is_part.then(|| folio.place(&here))
    });
    // Nothing is under write-back, so it is nobody else's.
    if let Some(pages) = folio.own_memory(take) {
        for place in places.into_iter().flatten() {
            pages[place].fill(0);
        }
    }
}
