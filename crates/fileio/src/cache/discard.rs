//! Dropping cached blocks: on truncation and punch, on advice, and when the file leaves memory.

use std::ops::Range;
use std::sync::Arc;

use crate::cache::folio::Folio;
use crate::cache::refused::end_keeping;
use crate::cache::span::{Span, SpanState};
use crate::cache::{AddressSpace, Backing};

/// What the dropped blocks held.
#[derive(Default)]
struct Dropped {
    dirty_blocks: usize,
    reserved_units: u64,
    queued: usize,
    #[expect(clippy::vec_box, reason = "spans hold boxed folios")]
    folios: Vec<Box<Folio>>,
}

impl AddressSpace {
    /// Drops the cached blocks of the range, clean and dirty; reservations and dirty counts of the dirty ones
    /// are returned. A block only partly in the range is kept and its bytes in the range are set to zero. It
    /// stays dirty if it was. If it was clean, the caller must zero those bytes on the device, unless they
    /// lie past the end of the file. If the range contains the end of the file and the file is not truncated
    /// there, the caller must commit the size: the dirty blocks that would have carried it are gone. The
    /// caller holds the file's lock exclusively and has frozen the space, so no block is being filled or
    /// under write-back.
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
            self.release(dropped);
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
            end_keeping(self, &folio.bytes(&whole));
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

    /// Removes the folios that begin at `starts`.
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

    fn release(&self, dropped: Dropped) {
        drop(dropped.folios);
        self.cache.unqueued(dropped.queued);
    }

    /// Drops the clean folios in the range, as advice (`DONTNEED`). Dirty ones stay.
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
            self.release(dropped);
        }
        self.cache.memory_freed();
    }

    /// Drops everything, because the file leaves memory: no reader, writer or flush uses it any more.
    pub(crate) fn drop_all(&self) {
        for number in self.spans(&(0..u64::MAX)) {
            let mut dropped = Dropped::default();
            self.with_present(number, |span, state| {
                dropped.folios.extend(state.take_all());
                dropped.queued += dropped.folios.iter().filter(|folio| folio.queued).count();
                self.cache.removed(span, state, &dropped.folios);
            });
            self.release(dropped);
        }
        end_keeping(self, &(0..u64::MAX));
        let dirty = self.dirty_bytes();
        if dirty > 0 {
            self.cache.throttle.release(dirty);
        }
        self.cache.memory_freed();
    }
}

/// The blocks of a folio that lie entirely in the range.
fn whole_blocks_in(folio: &Folio, range: &Range<u64>) -> Range<usize> {
    let touched = folio.blocks(range);
    let bytes = folio.bytes(&touched);
    let start = touched.start + usize::from(bytes.start < range.start);
    let end = touched.end - usize::from(range.end < bytes.end && touched.end > 0);
    start.min(end)..end
}

/// Zeroes the bytes in the range of blocks that are only partly in it.
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
    // Nothing is under write-back, so the memory is not shared.
    if let Some(pages) = folio.own_memory(take) {
        for place in places.into_iter().flatten() {
            pages[place].fill(0);
        }
    }
}
