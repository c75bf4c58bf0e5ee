//! What a piece of a buffered write needs before it may dirty blocks: room in the throttle for the dirty
//! bytes, and space reserved on the volume for holes; or, for bytes to be kept without that
//! ([`crate::cache::refused`]), room among those. Dropping a promise returns what was not used.

use std::ops::Range;
use std::sync::Arc;

use crate::cache::Backing;
use crate::cache::folio::Folio;
use crate::cache::refused::promote;
use crate::cache::span::number_of;
use crate::error::{Error, Result};
use crate::throttle::Throttle;

/// See the module documentation.
pub(crate) struct Promise<'a> {
    host: &'a Arc<dyn Backing>,
    room: Room<'a>,
    /// Runs of blocks that may become dirty: those that were clean when the promise was made.
    prepared: Vec<Range<u64>>,
    /// Holes among them, with space reserved for each unit. Used parts are removed.
    holes: Vec<Range<u64>>,
    /// Room for bytes that are kept without a reservation: that of the one block of this promise.
    kept_bytes: u64,
}

/// Room acquired for dirty bytes.
struct Room<'a> {
    throttle: &'a Throttle,
    bytes: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.throttle.release(self.bytes);
        }
    }
}

impl<'a> Promise<'a> {
    /// Acquires what a write to `range`, within one span, needs.
    ///
    /// # Errors
    /// Those of waiting for room and of reserving; nothing is held then. The same for kept blocks in the
    /// range.
    pub(crate) fn for_range(host: &'a Arc<dyn Backing>, range: Range<u64>) -> Result<Promise<'a>> {
        if host.space().refused.is_any() {
            promote(host, &range).1?;
        }
        let (mut promise, prepared) = Self::with_room(host, &range)?;
        for run in prepared {
            let holes = host.reserve(run.start, run.end - run.start)?;
            let holes = holes
                .runs
                .iter()
                .map(|(start, len)| *start..start.saturating_add(*len));
            promise.holes.extend(holes);
            promise.prepared.push(run);
        }
        Ok(promise)
    }

    /// Acquires what a write to one block needs for which there is no space, so that it is kept.
    ///
    /// # Errors
    /// `why`, if too much is kept; those of waiting for room.
    pub(crate) fn to_keep(
        host: &'a Arc<dyn Backing>,
        block: Range<u64>,
        why: Error,
    ) -> Result<Promise<'a>> {
        let (mut promise, prepared) = Self::with_room(host, &block)?;
        let bytes = promise.room.bytes;
        if !promise.room.throttle.keep(bytes) {
            return Err(why);
        }
        promise.kept_bytes = bytes;
        promise.prepared = prepared;
        Ok(promise)
    }

    /// With room for the clean runs of the range, which are also returned.
    fn with_room(
        host: &'a Arc<dyn Backing>,
        range: &Range<u64>,
    ) -> Result<(Promise<'a>, Vec<Range<u64>>)> {
        let prepared = clean_runs(host, range);
        let bytes = prepared.iter().map(|run| run.end - run.start).sum();
        let throttle = &host.space().cache.throttle;
        if bytes > 0 {
            throttle.acquire(bytes)?;
        }
        let promise = Promise {
            host,
            room: Room { throttle, bytes },
            prepared: Vec::new(),
            holes: Vec::new(),
            kept_bytes: 0,
        };
        Ok((promise, prepared))
    }

    /// Whether the clean blocks of `blocks`, `new_bytes` in all, may become dirty under this promise.
    pub(crate) fn covers(&self, folio: &Folio, blocks: &Range<usize>, new_bytes: u64) -> bool {
        if new_bytes > self.room.bytes {
            return false;
        }
        let mut from = blocks.start;
        while let Some(start) = folio.dirty.first(from..blocks.end, false) {
            let end = folio
                .dirty
                .first(start..blocks.end, true)
                .unwrap_or(blocks.end);
            let run = folio.bytes(&(start..end));
            if !self
                .prepared
                .iter()
                .any(|known| known.start <= run.start && run.end <= known.end)
            {
                return false;
            }
            from = end;
        }
        true
    }

    /// Uses the promise for the clean blocks of `blocks`, which become dirty; the folio takes over their
    /// reservations.
    pub(crate) fn used(&mut self, folio: &mut Folio, blocks: &Range<usize>, new_bytes: u64) {
        self.room.bytes -= new_bytes;
        let range = folio.bytes(blocks);
        if self.kept_bytes > 0 && new_bytes > 0 {
            // One block.
            self.kept_bytes -= new_bytes;
            self.host.space().refused.keep(range);
            return;
        }
        let mut left = Vec::with_capacity(self.holes.len());
        for hole in self.holes.drain(..) {
            let here = hole.start.max(range.start)..hole.end.min(range.end);
            if here.is_empty() {
                left.push(hole);
                continue;
            }
            left.extend(
                [hole.start..here.start, here.end..hole.end]
                    .into_iter()
                    .filter(|rest| !rest.is_empty()),
            );
            // A block that became dirty meanwhile has its own reservation.
            let mut from = folio.blocks(&here);
            while let Some(start) = folio.dirty.first(from.clone(), false) {
                let end = folio.dirty.first(start..from.end, true).unwrap_or(from.end);
                left.extend(rest_of(&folio.bytes(&(from.start..start))));
                folio.reserved.insert(start..end);
                from.start = end;
            }
            left.extend(rest_of(&folio.bytes(&from)));
        }
        self.holes = left;
    }
}

fn rest_of(range: &Range<u64>) -> Option<Range<u64>> {
    (!range.is_empty()).then(|| range.clone())
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if self.kept_bytes > 0 {
            self.room.throttle.end_keeping(self.kept_bytes);
        }
        let unit = u64::from(self.host.space().block_bytes());
        let units: u64 = self
            .holes
            .iter()
            .map(|hole| (hole.end - hole.start) / unit)
            .sum();
        if units > 0 {
            self.host.unreserve(units);
        }
    }
}

/// The runs of clean blocks in `range`, extended to whole blocks.
fn clean_runs(host: &Arc<dyn Backing>, range: &Range<u64>) -> Vec<Range<u64>> {
    let space = host.space();
    let whole = space.whole_blocks(range);
    let mut runs = Vec::new();
    let mut at = whole.start;
    let dirty = |start: u64, end: u64, at: &mut u64, runs: &mut Vec<Range<u64>>| {
        if *at < start {
            runs.push(*at..start);
        }
        *at = end;
    };
    space
        .cache
        .table
        .look(space.core.id, number_of(range.start), |span| {
            let state = span.state.read();
            for folio in state.overlapping(whole.clone()) {
                let mut blocks = folio.blocks(&whole);
                while let Some(run) = folio.dirty.first_run(blocks.clone()) {
                    let bytes = folio.bytes(&run);
                    dirty(bytes.start, bytes.end, &mut at, &mut runs);
                    blocks.start = run.end;
                }
            }
        });
    if at < whole.end {
        runs.push(at..whole.end);
    }
    runs
}
