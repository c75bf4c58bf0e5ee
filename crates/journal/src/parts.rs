//! Parts of a block with checksums of their own: the inodes of an inode table, the group descriptors, the
//! superblock.
//!
//! A checksum matters only to what reads the block from the device. So it is compared once after the block
//! was loaded, and computed once for all changes of a part in a transaction, when that is sealed. In between
//! the part's checksum in memory is out of date, and nothing compares it.

use std::sync::Arc;

/// A part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its place among the parts of the block, from 0.
    pub index: u32,
    /// Its number in the volume: that of its inode or group. The numbers in a block are consecutive.
    pub number: u32,
}

/// Computes the checksums of one kind of parts.
pub trait Sum: Send + Sync {
    /// Sets the checksum of `part` in its block. It runs when a transaction is sealed, under locks of the
    /// journal: it must not use the journal or wait for the device.
    fn set(&self, block: &mut [u8], part: Part);
}

/// What is known about the parts of one block.
#[derive(Default)]
pub(crate) struct Parts {
    /// Passed their check since the block was loaded, or were made in memory.
    sound: Bits,
    /// Changed since the last seal, so that their checksums must be computed.
    changed: Bits,
    /// The number of the part at index 0.
    first: u32,
    sum: Option<Arc<dyn Sum>>,
}

impl Parts {
    pub(crate) fn is_sound(&self, index: u32) -> bool {
        self.sound.has(index)
    }

    pub(crate) fn set_sound(&mut self, index: u32) {
        self.sound.set(index);
    }

    /// Records a change of `part`, whose checksum `sum` will compute.
    pub(crate) fn set_changed(&mut self, part: Part, sum: &Arc<dyn Sum>) {
        self.sound.set(part.index);
        self.changed.set(part.index);
        self.first = part.number.wrapping_sub(part.index);
        if self.sum.is_none() {
            self.sum = Some(Arc::clone(sum));
        }
    }

    /// Whether a checksum is out of date.
    pub(crate) fn is_changed(&self) -> bool {
        !self.changed.0.is_empty()
    }

    /// Brings all checksums up to date.
    pub(crate) fn seal(&mut self, block: &mut [u8]) {
        let changed = std::mem::take(&mut self.changed);
        let Some(sum) = &self.sum else { return };
        for index in changed.iter() {
            let number = self.first.wrapping_add(index);
            sum.set(block, Part { index, number });
        }
    }
}

/// A set of small numbers.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, at: u32) -> bool {
        let word = self.0.get(at as usize / 64);
        word.is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn set(&mut self, at: u32) {
        let index = at as usize / 64;
        if index >= self.0.len() {
            self.0.resize(index + 1, 0);
        }
        self.0[index] |= 1 << (at % 64);
    }

    /// Ascending.
    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.0.len() as u32 * 64).filter(|&at| self.has(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the part's number to its place.
    struct Number;

    impl Sum for Number {
        fn set(&self, block: &mut [u8], part: Part) {
            block[part.index as usize] = part.number as u8;
        }
    }

    #[test]
    fn changed_parts_are_summed_once() {
        let sum: Arc<dyn Sum> = Arc::new(Number);
        let mut parts = Parts::default();
        let mut block = [0; 200];
        assert!(!parts.is_changed() && !parts.is_sound(3));
        for (index, number) in [(3, 13), (130, 140), (3, 13)] {
            parts.set_changed(Part { index, number }, &sum);
        }
        parts.set_sound(7);
        assert!(parts.is_changed() && parts.is_sound(3) && parts.is_sound(7));
        parts.seal(&mut block);
        assert_eq!((block[3], block[7], block[130]), (13, 0, 140));
        assert!(!parts.is_changed() && parts.is_sound(130));
        block.fill(0);
        parts.seal(&mut block);
        assert_eq!(block, [0; 200]);
    }
}
