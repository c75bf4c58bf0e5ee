//! The blocks of a volume that are in use, as runs.
//!
//! A new volume has few runs, whatever its size: fixed metadata at the start of some groups, and the bitmaps
//! and tables of a flex group side by side. So a set of runs takes a few kilobytes where bitmaps of all
//! groups would take half a gigabyte for 16 TiB.

use std::collections::BTreeMap;
use std::ops::Range;

use throughline_extfmt::{Geometry, GroupNumber, bitmap};

/// A set of blocks, as disjoint runs that do not touch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    /// Start to end, exclusive.
    runs: BTreeMap<u64, u64>,
}

impl Space {
    /// Adds `start..end`; blocks that are in the set already stay.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        if let Some((&before, &before_end)) = self.runs.range(..=start).next_back()
            && before_end >= start
        {
            start = before;
            end = end.max(before_end);
        }
        while let Some((&next, &next_end)) = self.runs.range(start..=end).next() {
            self.runs.remove(&next);
            end = end.max(next_end);
        }
        self.runs.insert(start, end);
    }

    /// The runs that intersect `range`, cut to it.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self
            .runs
            .range(..=range.start)
            .next_back()
            .map_or(range.start, |(&start, _)| start);
        self.runs
            .range(first..range.end.max(first))
            .map(move |(&start, &end)| start.max(range.start)..end.min(range.end))
            .filter(|run| run.start < run.end)
    }

    /// The number of blocks of the set in `range`.
    pub(crate) fn count(&self, range: Range<u64>) -> u64 {
        self.within(range).map(|run| run.end - run.start).sum()
    }

    /// The number of blocks of the set in a group.
    pub(crate) fn used(&self, geo: &Geometry, group: GroupNumber) -> u64 {
        let first = geo.group_first_block(group).0;
        self.count(first..first + u64::from(geo.group_blocks(group)))
    }

    /// Makes the block bitmap of a group.
    pub(crate) fn bitmap(&self, geo: &Geometry, group: GroupNumber, bits: &mut [u8]) {
        bits.fill(0);
        let (first, len) = (geo.group_first_block(group).0, geo.group_blocks(group));
        for run in self.within(first..first + u64::from(len)) {
            bitmap::set_range(bits, (run.start - first) as u32..(run.end - first) as u32);
        }
        let end = bitmap::len_bits(bits);
        bitmap::set_range(bits, len..end);
    }

    /// The end of the run that holds a block.
    fn end_of_run(&self, block: u64) -> Option<u64> {
        let (_, &end) = self.runs.range(..=block).next_back()?;
        (end > block).then_some(end)
    }

    /// The first gap at or after `from`, up to `to`.
    pub(crate) fn gap(&self, from: u64, to: u64) -> Option<Range<u64>> {
        let mut start = from;
        while let Some(end) = self.end_of_run(start) {
            start = end;
        }
        if start >= to {
            return None;
        }
        let end = self
            .runs
            .range(start..)
            .next()
            .map_or(to, |(&next, _)| next);
        Some(start..end.min(to))
    }

    /// The start of the first gap of at least `len` blocks in `from..to`.
    pub(crate) fn first_fit(&self, from: u64, to: u64, len: u64) -> Option<u64> {
        let mut at = from;
        loop {
            let gap = self.gap(at, to)?;
            if gap.end - gap.start >= len {
                return Some(gap.start);
            }
            at = gap.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_and_gaps_are_found() {
        let mut space = Space::default();
        space.add(10..20);
        space.add(30..40);
        assert_eq!(space.count(0..100), 20);
        assert_eq!(space.count(15..35), 10);
        assert_eq!(space.gap(12, 100), Some(20..30));
        assert_eq!(space.first_fit(0, 100, 11), Some(40));
        assert_eq!(space.first_fit(0, 100, 10), Some(0));
        assert_eq!(space.first_fit(5, 45, 11), None);
        space.add(20..30);
        assert!(space.within(0..100).eq(std::iter::once(10..40)));
        space.add(5..50);
        assert!(space.within(0..100).eq(std::iter::once(5..50)));
        space.add(7..7);
        assert_eq!(space.count(0..100), 45);
        assert_eq!(space.gap(0, 5), Some(0..5));
        assert_eq!(space.gap(5, 50), None);
    }
}
