//! A set of blocks of a folio: one bit per block.
//!
//! Small folios, as random access makes them, hold the set inline. The words of a large set are on the heap,
//! so that a span's folio list stays compact in memory.

use std::ops::Range;

/// A set of the blocks `0..len` of a folio. `len` is fixed at construction; all arguments must lie within it.
#[derive(Clone, Debug)]
pub(crate) enum BlockSet {
    /// Up to 64 blocks.
    Small(u64),
    /// More than 64 blocks.
    Large(Box<[u64]>),
}

impl BlockSet {
    /// The empty set over `len` blocks.
    pub(crate) fn empty(len: usize) -> BlockSet {
        match len {
            0..=64 => BlockSet::Small(0),
            _ => BlockSet::Large(vec![0; len.div_ceil(64)].into_boxed_slice()),
        }
    }

    fn words(&self) -> &[u64] {
        match self {
            BlockSet::Small(word) => std::slice::from_ref(word),
            BlockSet::Large(words) => words,
        }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        match self {
            BlockSet::Small(word) => std::slice::from_mut(word),
            BlockSet::Large(words) => words,
        }
    }

    pub(crate) fn insert(&mut self, blocks: Range<usize>) {
        for (index, mask) in masks(blocks) {
            self.words_mut()[index] |= mask;
        }
    }

    pub(crate) fn remove(&mut self, blocks: Range<usize>) {
        for (index, mask) in masks(blocks) {
            self.words_mut()[index] &= !mask;
        }
    }

    pub(crate) fn contains(&self, block: usize) -> bool {
        self.words()[block / 64] >> (block % 64) & 1 == 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words().iter().all(|word| *word == 0)
    }

    /// Whether any of `blocks` is in the set.
    pub(crate) fn has_any(&self, blocks: Range<usize>) -> bool {
        masks(blocks).any(|(index, mask)| self.words()[index] & mask != 0)
    }

    /// The number of `blocks` in the set.
    pub(crate) fn count(&self, blocks: Range<usize>) -> usize {
        masks(blocks)
            .map(|(index, mask)| (self.words()[index] & mask).count_ones() as usize)
            .sum()
    }

    /// The first of `blocks` that is in the set (`within`), or is not.
    pub(crate) fn first(&self, blocks: Range<usize>, within: bool) -> Option<usize> {
        masks(blocks).find_map(|(index, mask)| {
            let word = self.words()[index];
            let hits = mask & if within { word } else { !word };
            (hits != 0).then(|| index * 64 + hits.trailing_zeros() as usize)
        })
    }

    /// The first run of adjacent blocks within `blocks` that are in the set.
    pub(crate) fn first_run(&self, blocks: Range<usize>) -> Option<Range<usize>> {
        let start = self.first(blocks.clone(), true)?;
        let end = self.first(start..blocks.end, false).unwrap_or(blocks.end);
        Some(start..end)
    }
}

/// The words that `blocks` touch, each with the mask of their bits in it.
fn masks(blocks: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let (first, end) = (blocks.start / 64, blocks.end.div_ceil(64));
    let words = if blocks.is_empty() { 0..0 } else { first..end };
    words.map(move |index| {
        let low = blocks.start.saturating_sub(index * 64);
        let high = (blocks.end - index * 64).min(64);
        (index, (u64::MAX >> (64 - high)) & (u64::MAX << low))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares every operation with the same operation on a plain list of booleans.
    #[test]
    fn a_set_matches_a_list_of_booleans() {
        for len in [1, 7, 63, 64, 65, 512, 4096] {
            let mut random = fastrand::Rng::with_seed(len as u64);
            let (mut set, mut plain) = (BlockSet::empty(len), vec![false; len]);
            for _ in 0..300 {
                let from = random.usize(..=len);
                let range = from..random.usize(from..=len);
                let value = random.bool();
                match value {
                    true => set.insert(range.clone()),
                    false => set.remove(range.clone()),
                }
                plain[range].fill(value);
                let from = random.usize(..=len);
                let asked = from..random.usize(from..=len);
                let part = &plain[asked.clone()];
                assert_eq!(
                    set.count(asked.clone()),
                    part.iter().filter(|b| **b).count()
                );
                assert_eq!(set.has_any(asked.clone()), part.iter().any(|b| *b));
                assert_eq!(set.is_empty(), plain.iter().all(|b| !b));
                for within in [false, true] {
                    let first = part.iter().position(|b| *b == within).map(|i| i + from);
                    assert_eq!(set.first(asked.clone(), within), first);
                }
                if let Some(run) = set.first_run(asked.clone()) {
                    assert!(plain[run.clone()].iter().all(|b| *b));
                    assert!(run.end == asked.end || !plain[run.end]);
                    assert!(set.contains(run.start));
                } else {
                    assert!(!part.contains(&true));
                }
            }
        }
    }
}
