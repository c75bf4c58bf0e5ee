//! What a random sequence asks for at each step: numbers that a seed generates, or that a fuzzer's input
//! holds.

use std::ops::RangeInclusive;

use fastrand::Rng;

/// Where choices come from.
pub(crate) enum Choices<'a> {
    Seed(Rng),
    /// A choice takes as few bytes as its range needs. After the last, each choice is the least.
    #[allow(dead_code)] // the fuzz targets'
    Input(&'a [u8]),
}

impl Choices<'_> {
    pub(crate) fn of_seed(seed: u64) -> Self {
        Choices::Seed(Rng::with_seed(seed))
    }

    /// Whether the input is used up: the sequence ends.
    pub(crate) fn is_spent(&self) -> bool {
        matches!(self, Choices::Input([]))
    }

    /// A number of the range.
    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (first, last) = (*range.start(), *range.end());
        match self {
            Choices::Seed(rng) => rng.u64(range),
            Choices::Input(input) => {
                let bytes = (u64::BITS - (last - first).leading_zeros()).div_ceil(8);
                let (head, rest) = input.split_at(input.len().min(bytes as usize));
                *input = rest;
                let value = head
                    .iter()
                    .fold(0, |value, byte| value << 8 | u64::from(*byte));
                match (last - first).checked_add(1) {
                    Some(width) => first + value % width,
                    None => value,
                }
            }
        }
    }

    /// A number less than `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.within(0..=end - 1)
    }

    pub(crate) fn word_below(&mut self, end: u32) -> u32 {
        self.below(end.into()) as u32
    }

    pub(crate) fn any(&mut self) -> u64 {
        self.within(0..=u64::MAX)
    }

    pub(crate) fn any_word(&mut self) -> u32 {
        self.within(0..=u32::MAX.into()) as u32
    }

    pub(crate) fn any_byte(&mut self) -> u8 {
        self.within(0..=255) as u8
    }

    pub(crate) fn bool(&mut self) -> bool {
        self.below(2) == 1
    }

    /// An index of something with `len` elements.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of `all`.
    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }
}
