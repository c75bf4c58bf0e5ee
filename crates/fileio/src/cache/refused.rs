//! Bytes that their program has stored already, and for which the volume has no space: [`Refused`], part of
//! each [`AddressSpace`].
//!
//! The kernel writes back what programs stored in mappings. No program waits for that, so there is nobody to
//! take an error, and the kernel drops what is refused. So these bytes are taken without a promise of space:
//!
//! ```text
//!   write-back ─┬─ space promised ──► dirty           as after any write
//!               ├─ no space ────────► dirty, kept     not written back before space is promised for it
//!               └─ too much is kept ► lost            only the range is remembered
//! ```
//!
//! Invariants:
//! - Kept blocks are dirty and have no reservation. They change with their span locked. Write-back does not
//!   take them. Each flush that covers them, and each retry, first asks for their space ([`promote`]), and
//!   fails without it.
//! - Kept bytes are counted as dirty memory, and are at most a quarter of its limits
//!   ([`Throttle::keep`](crate::throttle::Throttle::keep)), so that all other writers always find room.
//! - A lost range stays until it is written again, or removed from the file. Until then each sync of the file
//!   or of the volume fails ([`Refused::lost`]).
//! - The flusher holds a file with either, so it stays in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use throughline_locks::Mutex;

use crate::cache::folio::Folio;
use crate::cache::span::{SPAN_BYTES, number_of, range_of};
use crate::cache::{AddressSpace, Backing};
use crate::error::{Error, Reason, Result};

/// The most lost ranges of a file. Beyond that, the nearest before a new one is joined with it.
const MOST_LOST: usize = 16 << 10;

/// Bytes that a program has stored and that have no space on the volume: kept in memory, or lost.
#[derive(Default)]
pub struct Refused {
    /// Whether there is anything. Changes only with the lists.
    any: AtomicBool,
    lists: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    kept: RangeSet,
    lost: RangeSet,
    /// Why the last of them was lost.
    why: Option<Error>,
}

impl Refused {
    /// Whether anything is kept or lost. Almost always false, and then the only cost.
    pub fn is_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// The first range of bytes within `range` that are only in memory because there is no space for them.
    pub fn first_kept(&self, range: &Range<u64>) -> Option<Range<u64>> {
        if !self.is_any() {
            return None;
        }
        self.lists.lock().kept.first(range)
    }

    /// Why bytes of the file are lost that a program has stored; `None` if none are.
    pub fn lost(&self) -> Option<Error> {
        if !self.is_any() {
            return None;
        }
        let lists = self.lists.lock();
        lists.why.clone().filter(|_| !lists.lost.is_empty())
    }

    /// How many bytes are kept without space for them, and how many are lost.
    pub fn bytes(&self) -> (u64, u64) {
        let lists = self.lists.lock();
        (lists.kept.bytes(), lists.lost.bytes())
    }

    /// Bytes of the file were written again, or removed: they are no longer lost.
    pub fn rewritten(&self, range: &Range<u64>) {
        if self.is_any() {
            self.change(|lists| lists.lost.remove(range));
        }
    }

    /// Counts whole blocks, which became dirty without a promise, as kept.
    pub(super) fn keep(&self, blocks: Range<u64>) {
        self.change(|lists| lists.kept.insert(blocks));
    }

    /// As [`Folio::takeable`], without kept blocks.
    pub(super) fn takeable(&self, folio: &Folio, mut within: Range<usize>) -> Option<Range<usize>> {
        loop {
            let blocks = folio.takeable(within.clone())?;
            let bytes = folio.bytes(&blocks);
            let Some(kept) = self.first_kept(&bytes) else {
                return Some(blocks);
            };
            if kept.start > bytes.start {
                return Some(blocks.start..folio.blocks(&(bytes.start..kept.start)).end);
            }
            within.start = folio.blocks(&kept).end;
        }
    }

    /// The blocks of the range are no longer kept. Returns how many bytes of them were.
    fn end_keeping(&self, range: &Range<u64>) -> u64 {
        if !self.is_any() {
            return 0;
        }
        self.change(|lists| lists.kept.remove(range))
    }

    fn change<R>(&self, change: impl FnOnce(&mut Lists) -> R) -> R {
        let mut lists = self.lists.lock();
        let result = change(&mut lists);
        let is_any = !lists.kept.is_empty() || !lists.lost.is_empty();
        self.any.store(is_any, Ordering::Release);
        result
    }
}

/// See [`crate::buffered::lose`].
pub(crate) fn lose(host: &Arc<dyn Backing>, range: Range<u64>, why: Error) {
    let space = host.space();
    space.refused.change(|lists| {
        lists.lost.insert_at_most(range, MOST_LOST);
        lists.why = Some(why);
    });
    space.cache.writeback.dirtied(host);
}

/// The blocks of the range were dropped, or space is promised for them: they are no longer kept. Called with
/// their span locked.
pub(super) fn end_keeping(space: &AddressSpace, range: &Range<u64>) {
    let bytes = space.refused.end_keeping(range);
    if bytes > 0 {
        space.cache.throttle.end_keeping(bytes);
    }
}

/// Space for the holes in whole blocks of one span was reserved: those that are dirty take it, and are not
/// kept any more. The rest is returned.
fn promised(host: &dyn Backing, blocks: &Range<u64>, holes: &[(u64, u64)]) {
    let space = host.space();
    let unit = u64::from(space.block_bytes());
    let mut units: u64 = holes.iter().map(|(_, len)| len / unit).sum();
    space.with_present(number_of(blocks.start), |_, state| {
        for folio in state.overlapping_mut(blocks.clone()) {
            for (start, len) in holes {
                let mut here = folio.blocks(&(*start..start + len));
                while let Some(run) = folio.dirty.first_run(here.clone()) {
                    units -= (run.len() - folio.reserved.count(run.clone())) as u64;
                    folio.reserved.insert(run.clone());
                    here.start = run.end;
                }
            }
        }
        end_keeping(space, blocks);
    });
    if units > 0 {
        host.unreserve(units);
    }
}

/// Asks for the space of the kept blocks in the range, in ascending order. Returns whether it got any, and an
/// error if some blocks are still kept. Called with the file's lock held shared, or as background work.
pub(crate) fn promote(host: &Arc<dyn Backing>, range: &Range<u64>) -> (bool, Result<()>) {
    let space = host.space();
    let block = u64::from(space.block_bytes());
    let range = space.whole_blocks(range);
    let (mut at, mut most, mut any) = (range.start, SPAN_BYTES, false);
    while let Some(kept) = space.refused.first_kept(&(at..range.end)) {
        let end = kept.end.min(range_of(number_of(kept.start)).end);
        let end = end.min(kept.start + most);
        match host.reserve_kept(kept.start, end - kept.start) {
            Ok(holes) => {
                promised(&**host, &(kept.start..end), &holes.runs);
                (at, any) = (end, true);
                most = (most * 2).min(SPAN_BYTES);
            }
            Err(Error::Caller(Reason::NoSpace | Reason::Quota)) if end - kept.start > block => {
                most = ((end - kept.start) / 2 / block * block).max(block);
            }
            Err(error) => return (any, Err(error)),
        }
    }
    (any, Ok(()))
}

/// Ranges that do not touch, by their start.
#[derive(Debug, Default)]
struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// The first part of `range` that is in the set.
    fn first(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let before = self.0.range(..=range.start).next_back();
        let before = before.filter(|(_, end)| **end > range.start);
        let (start, end) = before.or_else(|| self.0.range(range.start..).next())?;
        let found = (*start).max(range.start)..(*end).min(range.end);
        (!found.is_empty()).then_some(found)
    }

    fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&first, &last)) = self.0.range(..=end).next_back()
            && last >= start
        {
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.0.insert(start, end);
    }

    /// Inserts, with what lies between it and the range before it if there would be too many.
    fn insert_at_most(&mut self, range: Range<u64>, most: usize) {
        let (mut start, end) = (range.start, range.end);
        if self.0.len() >= most
            && let Some((_, before)) = self.0.range(..start).next_back()
        {
            start = start.min(*before);
        }
        self.insert(start..end);
    }

    /// Returns how many bytes were in the set.
    fn remove(&mut self, range: &Range<u64>) -> u64 {
        let mut bytes = 0;
        while let Some(found) = self.first(range) {
            let touching = self.0.range(..=found.start).next_back();
            let Some((start, end)) = touching.map(|(start, end)| (*start, *end)) else {
                break;
            };
            self.0.remove(&start);
            if start < found.start {
                self.0.insert(start, found.start);
            }
            if found.end < end {
                self.0.insert(found.end, end);
            }
            bytes += found.end - found.start;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_ranges_matches_a_list_of_booleans() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut set, mut plain) = (RangeSet::default(), vec![false; 200]);
        for _ in 0..5000 {
            let from = random.usize(..200);
            let range = from..random.usize(from..200.min(from + 40));
            let bytes = range.start as u64..range.end as u64;
            if random.bool() {
                set.insert(bytes);
                plain[range].fill(true);
            } else {
                let before = plain[range.clone()].iter().filter(|b| **b).count();
                assert_eq!(set.remove(&bytes), before as u64);
                plain[range].fill(false);
            }
            assert_eq!(set.bytes(), plain.iter().filter(|b| **b).count() as u64);
            let from = random.usize(..200);
            let to = random.usize(from..200);
            let first = (from..to).find(|at| plain[*at]);
            let end = first.map(|first| (first..to).find(|at| !plain[*at]).unwrap_or(to));
            let expected = first.zip(end).map(|(start, end)| start as u64..end as u64);
            assert_eq!(set.first(&(from as u64..to as u64)), expected);
        }
    }

    #[test]
    fn too_many_ranges_are_joined_with_what_lies_between() {
        let mut set = RangeSet::default();
        for at in 0..10 {
            set.insert_at_most(at * 100..at * 100 + 10, 5);
        }
        assert_eq!(set.0.len(), 5);
        assert!(
            (0..10)
                .all(|at| set.first(&(at * 100..at * 100 + 10)) == Some(at * 100..at * 100 + 10))
        );
    }
}
