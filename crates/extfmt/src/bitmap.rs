//! Bitmaps of blocks and inodes: bit 0 is the lowest bit of byte 0, a set bit is in use.
//!
//! All functions take bit numbers within the bitmap and treat bits past its end as absent.
//! Searches read one 64-bit word at a time.

use std::ops::Range;

use crate::checksum::crc32c;

/// The number of bits in a bitmap (the format uses at most 65536 bytes).
pub fn len_bits(bits: &[u8]) -> u32 {
    u32::try_from(bits.len().saturating_mul(8)).unwrap_or(u32::MAX)
}

/// Whether a bit is set; a bit past the end is not.
pub fn is_set(bits: &[u8], bit: u32) -> bool {
    bits.get((bit / 8) as usize)
        .is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}

/// Sets one bit; returns whether it was clear. A bit past the end is ignored and counts as set.
pub fn set(bits: &mut [u8], bit: u32) -> bool {
    let mask = 1u8 << (bit % 8);
    bits.get_mut((bit / 8) as usize).is_some_and(|byte| {
        let was_clear = *byte & mask == 0;
        *byte |= mask;
        was_clear
    })
}

/// Clears one bit; returns whether it was set.
pub fn clear(bits: &mut [u8], bit: u32) -> bool {
    let mask = 1u8 << (bit % 8);
    bits.get_mut((bit / 8) as usize).is_some_and(|byte| {
        let was_set = *byte & mask != 0;
        *byte &= !mask;
        was_set
    })
}

/// Sets the bits of a range.
pub fn set_range(bits: &mut [u8], range: Range<u32>) {
    each_byte(bits, range, |byte, mask| *byte |= mask);
}

/// Clears the bits of a range.
pub fn clear_range(bits: &mut [u8], range: Range<u32>) {
    each_byte(bits, range, |byte, mask| *byte &= !mask);
}

/// Calls `change` with each byte the range touches, and the mask of the bits it covers there.
fn each_byte(bits: &mut [u8], range: Range<u32>, mut change: impl FnMut(&mut u8, u8)) {
    let Some(last) = range
        .end
        .min(len_bits(bits))
        .checked_sub(1)
        .filter(|&l| l >= range.start)
    else {
        return;
    };
    let (first_byte, last_byte) = ((range.start / 8) as usize, (last / 8) as usize);
    let first_mask = 0xFFu8 << (range.start % 8);
    let last_mask = 0xFFu8 >> (7u32.saturating_sub(last % 8));
    let Some(touched) = bits.get_mut(first_byte..=last_byte) else {
        return;
    };
    match touched {
        [only] => change(only, first_mask & last_mask),
        [first, middle @ .., last] => {
            change(first, first_mask);
            middle.iter_mut().for_each(|byte| change(byte, 0xFF));
            change(last, last_mask);
        }
        [] => {}
    }
}

/// First clear bit of a range.
pub fn find_clear(bits: &[u8], range: Range<u32>) -> Option<u32> {
    find(bits, range, !0)
}

/// First set bit of a range.
pub fn find_set(bits: &[u8], range: Range<u32>) -> Option<u32> {
    find(bits, range, 0)
}

/// First bit of a range that is set after an XOR of each word with `flip`.
fn find(bits: &[u8], range: Range<u32>, flip: u64) -> Option<u32> {
    let end = range.end.min(len_bits(bits));
    let mut base = range.start & !63;
    let mut mask = !0u64 << (range.start % 64);
    while base < end {
        let word = (word_at(bits, base) ^ flip) & mask;
        if word != 0 {
            let found = base.saturating_add(word.trailing_zeros());
            return (found < end).then_some(found);
        }
        mask = !0;
        base = base.saturating_add(64);
    }
    None
}

/// The 64 bits from bit `base`, a multiple of 64; bits past the end are 0.
fn word_at(bits: &[u8], base: u32) -> u64 {
    let rest = bits.get((base / 8) as usize..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => {
            let mut bytes = [0u8; 8];
            bytes
                .iter_mut()
                .zip(rest)
                .for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(bytes)
        }
    }
}

/// The runs of clear bits in a range, ascending.
pub fn clear_runs(bits: &[u8], range: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let end = range.end.min(len_bits(bits));
    let mut from = range.start;
    std::iter::from_fn(move || {
        let start = find_clear(bits, from..end)?;
        let stop = find_set(bits, start..end).unwrap_or(end);
        from = stop;
        Some(start..stop)
    })
}

/// The first run of at least `len` clear bits in a range, in its full length.
pub fn find_clear_run(bits: &[u8], range: Range<u32>, len: u32) -> Option<Range<u32>> {
    clear_runs(bits, range).find(|run| run.end.saturating_sub(run.start) >= len)
}

/// The longest run of clear bits in a range; of several, the first.
pub fn longest_clear_run(bits: &[u8], range: Range<u32>) -> Option<Range<u32>> {
    clear_runs(bits, range).reduce(|best, run| {
        let longer = run.end.saturating_sub(run.start) > best.end.saturating_sub(best.start);
        if longer { run } else { best }
    })
}

/// The number of set bits in a range.
pub fn count_set(bits: &[u8], range: Range<u32>) -> u32 {
    let end = range.end.min(len_bits(bits));
    let mut base = range.start & !63;
    let mut mask = !0u64 << (range.start % 64);
    let mut count = 0u32;
    while base < end {
        let left = end.saturating_sub(base);
        if left < 64 {
            mask &= !(!0u64 << left);
        }
        count = count.saturating_add((word_at(bits, base) & mask).count_ones());
        mask = !0;
        base = base.saturating_add(64);
    }
    count
}

/// The number of clear bits in a range, within the bitmap.
pub fn count_clear(bits: &[u8], range: Range<u32>) -> u32 {
    let end = range.end.min(len_bits(bits));
    let set = count_set(bits, range.start..end);
    end.saturating_sub(range.start).saturating_sub(set)
}

/// The checksum of a bitmap of `count` bits (clusters or inodes of a group) with
/// `metadata_csum`, over whole bytes. A 32-byte descriptor stores its lower 16 bits.
pub fn checksum(bits: &[u8], count: u32, fs_seed: u32) -> u32 {
    let len = ((count / 8) as usize).min(bits.len());
    crc32c(fs_seed, bits.get(..len).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use throughline_testkit::cases::config;

    fn naive(bits: &[u8], range: Range<u32>, want: bool) -> Option<u32> {
        range
            .filter(|&bit| bit < len_bits(bits))
            .find(|&bit| is_set(bits, bit) == want)
    }

    /// Bitmaps of long runs, as real ones, of any length in bytes.
    fn bits() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![3 => Just(0u8), 3 => Just(0xFF), 1 => any::<u8>()];
        proptest::collection::vec(byte, 0..40)
    }

    proptest! {
        #![proptest_config(config(256))]

        #[test]
        fn agrees_with_bit_by_bit(bits in bits(), from in 0u32..330, to in 0u32..330) {
            prop_assert_eq!(find_clear(&bits, from..to), naive(&bits, from..to, false));
            prop_assert_eq!(find_set(&bits, from..to), naive(&bits, from..to, true));
            let in_range = || (from..to).filter(|&bit| bit < len_bits(&bits));
            let set = in_range().filter(|&bit| is_set(&bits, bit)).count();
            prop_assert_eq!(count_set(&bits, from..to) as usize, set);
            prop_assert_eq!(count_clear(&bits, from..to) as usize, in_range().count() - set);
            let listed: Vec<u32> = clear_runs(&bits, from..to).flatten().collect();
            let clear: Vec<u32> = in_range().filter(|&bit| !is_set(&bits, bit)).collect();
            prop_assert_eq!(listed, clear);
        }

        #[test]
        fn ranges_change_their_bits_only(bits in bits(), from in 0u32..330, to in 0u32..330) {
            let (mut with, mut without) = (bits.clone(), bits.clone());
            set_range(&mut with, from..to);
            clear_range(&mut without, from..to);
            for bit in 0..len_bits(&bits) {
                let inside = (from..to).contains(&bit);
                prop_assert_eq!(is_set(&with, bit), inside || is_set(&bits, bit));
                prop_assert_eq!(is_set(&without, bit), !inside && is_set(&bits, bit));
            }
        }
    }

    #[test]
    fn runs_of_a_length() {
        let mut bits = vec![0xFFu8; 64];
        clear_range(&mut bits, 10..12);
        clear_range(&mut bits, 100..140);
        clear_range(&mut bits, 300..340);
        assert_eq!(find_clear_run(&bits, 0..512, 3), Some(100..140));
        assert_eq!(find_clear_run(&bits, 0..512, 41), None);
        assert_eq!(find_clear_run(&bits, 130..512, 11), Some(300..340));
        assert_eq!(longest_clear_run(&bits, 0..512), Some(100..140));
        assert_eq!(longest_clear_run(&bits, 140..150), None);
        assert!(set(&mut bits, 100) && !set(&mut bits, 100));
        assert!(clear(&mut bits, 100) && !clear(&mut bits, 100));
        assert!(!set(&mut bits, 512) && !clear(&mut bits, 512));
    }
}
