//! Memory that grows as a `Vec<u8>` does, and from which a device writes without copying it first.

use std::ops::{Deref, Range};

use throughline_device::AlignedBuf;

/// The strictest alignment that a device asks for: a page. Logical blocks are not larger either.
const ALIGN_BYTES: usize = 4096;
const LEAST_BYTES: usize = 64 << 10;

/// Bytes in aligned memory. Dereferences to what it has been filled with.
pub(crate) struct Buffer {
    memory: AlignedBuf,
    len: usize,
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer {
            memory: AlignedBuf::zeroed(0, ALIGN_BYTES),
            len: 0,
        }
    }
}

impl Buffer {
    /// Forgets the content, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends `len` zeros, and returns them to be filled.
    pub(crate) fn grow(&mut self, len: usize) -> &mut [u8] {
        let place = self.extend(len);
        let fresh = &mut self.memory[place];
        fresh.fill(0);
        fresh
    }

    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        let place = self.extend(bytes.len());
        self.memory[place].copy_from_slice(bytes);
    }

    /// The bytes of a range, to be changed.
    ///
    /// # Panics
    /// If the range ends after the content.
    pub(crate) fn range_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.memory[..self.len][range]
    }

    /// Makes the content longer by bytes of any value.
    fn extend(&mut self, more: usize) -> Range<usize> {
        let place = self.len..self.len + more;
        if place.end > self.memory.len() {
            let bytes = place.end.next_power_of_two().max(LEAST_BYTES);
            let mut larger = AlignedBuf::zeroed(bytes, ALIGN_BYTES);
            larger[..self.len].copy_from_slice(self);
            self.memory = larger;
        }
        self.len = place.end;
        place
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_survives_growth_and_new_bytes_are_zeros() {
        let mut buffer = Buffer::default();
        let mut expected = Vec::new();
        for round in 0..3 {
            for len in [0, 1, 5000, LEAST_BYTES, 3] {
                buffer.extend_from_slice(&vec![7; len]);
                expected.extend(vec![7; len]);
                assert!(buffer.grow(len).iter().all(|byte| *byte == 0));
                expected.resize(expected.len() + len, 0);
                assert!(*buffer == *expected, "round {round}, {len}");
                assert!(buffer.as_ptr().addr().is_multiple_of(ALIGN_BYTES));
            }
            buffer.range_mut(1..2)[0] = 9;
            assert_eq!(buffer[1], 9);
            buffer.clear();
            expected.clear();
            assert!(buffer.is_empty());
        }
    }
}
