//! A short list of ranges of a file: [`Ranges`].

use std::collections::VecDeque;
use std::ops::Range;

/// Maximum number of ranges: as many as runs of writes are detected in one file.
const MOST: usize = 16;

/// Ranges that do not touch, in the order of their turns, at most [`MOST`]. Beyond that, the two nearest
/// become one with what lies between them: more than was asked for, but never less.
#[derive(Debug, Default)]
pub(crate) struct Ranges(VecDeque<Range<u64>>);

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a range. It joins those that it touches, in the place of the first of them, or is the last.
    pub(super) fn add(&mut self, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        let touches = |one: &Range<u64>| one.start <= range.end && range.start <= one.end;
        let Some(place) = self.0.iter().position(touches) else {
            self.0.push_back(range);
            return self.join_nearest();
        };
        let mut all = range.clone();
        let mut index = 0;
        self.0.retain(|one| {
            let joins = touches(one);
            if joins {
                all = all.start.min(one.start)..all.end.max(one.end);
            }
            index += 1;
            !joins || index == place + 1
        });
        self.0[place] = all;
    }

    /// The range whose turn it is.
    pub(super) fn first(&self) -> Option<&Range<u64>> {
        self.0.front()
    }

    /// Removes what lies before `at` from the first range, all of it for `None`. With `turn`, the rest has
    /// its next turn after the others.
    pub(super) fn advance(&mut self, at: Option<u64>, turn: bool) {
        let Some(range) = self.0.pop_front() else {
            return;
        };
        let rest = at.unwrap_or(range.end).max(range.start)..range.end;
        match turn {
            _ if rest.is_empty() => {}
            true => self.0.push_back(rest),
            false => self.0.push_front(rest),
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn join_nearest(&mut self) {
        if self.0.len() <= MOST {
            return;
        }
        let mut by_start: Vec<Range<u64>> = self.0.iter().cloned().collect();
        by_start.sort_unstable_by_key(|range| range.start);
        let nearest = by_start
            .windows(2)
            .min_by_key(|pair| pair[1].start.saturating_sub(pair[0].end));
        if let Some([before, behind]) = nearest {
            self.add(before.start..behind.end);
        }
    }
}

impl IntoIterator for Ranges {
    type Item = Range<u64>;
    type IntoIter = std::collections::vec_deque::IntoIter<Range<u64>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_take_turns_and_none_is_skipped() {
        let mut ranges = Ranges::default();
        for one in [0..10, 20..30, 40..50] {
            ranges.add(one);
        }
        ranges.advance(Some(5), true);
        assert_eq!(ranges.first(), Some(&(20..30)));
        ranges.advance(None, true);
        assert_eq!(ranges.first(), Some(&(40..50)));
        ranges.advance(Some(50), true);
        assert_eq!(ranges.first(), Some(&(5..10)));
        ranges.advance(Some(7), false);
        assert_eq!(ranges.first(), Some(&(7..10)));
        ranges.add(60..70);
        ranges.add(9..60);
        let all: Vec<_> = ranges.into_iter().collect();
        assert_eq!((all.len(), all[0].clone()), (1, 7..70));
    }

    #[test]
    fn only_the_nearest_are_joined_when_there_are_too_many() {
        let mut ranges = Ranges::default();
        for number in 0..MOST as u64 {
            ranges.add(number * 1000..number * 1000 + 10);
        }
        ranges.add(3020..3030);
        let all: Vec<_> = ranges.into_iter().collect();
        assert_eq!(all.len(), MOST);
        assert_eq!(all[3], 3000..3030);
        assert_eq!((all[0].clone(), all[4].clone()), (0..10, 4000..4010));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_that_was_added_is_lost(
            added in prop::collection::vec((0_u64..1000, 0_u64..30), 1..80),
        ) {
            let mut ranges = Ranges::default();
            for (start, len) in &added {
                ranges.add(*start..start + len);
                prop_assert!(ranges.0.len() <= MOST);
            }
            let all: Vec<_> = ranges.into_iter().collect();
            for (start, len) in added {
                let is_in = |one: &Range<u64>| one.start <= start && start + len <= one.end;
                prop_assert!(len == 0 || all.iter().any(is_in));
            }
            for (i, one) in all.iter().enumerate() {
                for other in &all[..i] {
                    prop_assert!(one.end < other.start || other.end < one.start, "{one:?} {other:?}");
                }
            }
        }
    }
}
