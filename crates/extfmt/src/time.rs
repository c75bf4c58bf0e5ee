//! Inode times: 32 bits of seconds, and in the extra word 2 more bits and nanoseconds.
//!
//! The 32-bit seconds are signed (1901 to 2038); the two low bits of the extra word add
//! multiples of 2^32, so that times run to the year 2446.

/// A point in time: seconds since 1970 (negative before), and nanoseconds (0..10^9).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// The first second an inode can hold.
pub const MIN_SECONDS: i64 = i32::MIN as i64;
/// The last second an inode can hold with an extra word.
pub const MAX_SECONDS: i64 = i32::MAX as i64 + (3 << 32);
/// The last second an inode can hold without an extra word.
pub const MAX_SECONDS_SHORT: i64 = i32::MAX as i64;

impl Timestamp {
    /// A time of whole seconds.
    pub fn from_seconds(seconds: i64) -> Self {
        Self {
            seconds,
            nanoseconds: 0,
        }
    }

    /// Reads the two words; `extra` is `None` if the inode has no room for it.
    pub fn decode(word: u32, extra: Option<u32>) -> Self {
        let seconds = i64::from(word as i32);
        match extra {
            None => Self {
                seconds,
                nanoseconds: 0,
            },
            Some(extra) => Self {
                seconds: seconds.saturating_add(i64::from(extra & 3) << 32),
                // The field can hold more than 10^9 - 1.
                nanoseconds: (extra >> 2).min(999_999_999),
            },
        }
    }

    /// The two words. Times out of range become the first or the last second, without nanoseconds.
    pub fn encode(self) -> (u32, u32) {
        let seconds = self.seconds.clamp(MIN_SECONDS, MAX_SECONDS);
        let word = seconds as u32;
        let epoch = (seconds.wrapping_sub(i64::from(word as i32)) >> 32) as u32 & 3;
        let nanoseconds = match seconds {
            MIN_SECONDS | MAX_SECONDS => 0,
            _ => self.nanoseconds.min(999_999_999),
        };
        (word, nanoseconds << 2 | epoch)
    }

    /// The word of an inode without extra words, clamped to 1901..2038.
    pub fn encode_short(self) -> u32 {
        self.seconds.clamp(MIN_SECONDS, MAX_SECONDS_SHORT) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_words() {
        // The table of the format's documentation: extra bits and sign against the year.
        for (word, extra, seconds) in [
            (0x8000_0000, 0, -0x8000_0000),
            (0xFFFF_FFFF, 0, -1),
            (0, 0, 0),
            (0x7FFF_FFFF, 0, 0x7FFF_FFFF),
            (0x8000_0000, 1, 0x8000_0000),
            (0xFFFF_FFFF, 1, 0xFFFF_FFFF),
            (0, 1, 0x1_0000_0000),
            (0x7FFF_FFFF, 3, 0x3_7FFF_FFFF),
        ] {
            let time = Timestamp::decode(word, Some(extra));
            assert_eq!(time.seconds, seconds, "{word:#x} {extra}");
            assert_eq!(time.encode(), (word, extra));
        }
        assert_eq!(Timestamp::decode(!0, None).seconds, -1);
    }

    #[test]
    fn the_first_and_the_last_second_are_set_without_nanoseconds() {
        for seconds in [MIN_SECONDS, MAX_SECONDS] {
            let (word, epoch) = Timestamp::from_seconds(seconds).encode();
            let found = Timestamp::decode(word, Some(576 << 2 | epoch));
            assert_eq!((found.seconds, found.nanoseconds), (seconds, 576));
            assert_eq!(found.encode(), (word, epoch));
        }
    }

    #[test]
    fn out_of_range_is_clamped() {
        let late = Timestamp {
            seconds: i64::MAX,
            nanoseconds: u32::MAX,
        };
        let (word, extra) = late.encode();
        let back = Timestamp::decode(word, Some(extra));
        assert_eq!(back, Timestamp::from_seconds(MAX_SECONDS));
        assert_eq!(late.encode_short(), 0x7FFF_FFFF);
        let early = Timestamp::from_seconds(i64::MIN);
        assert_eq!(
            Timestamp::decode(early.encode().0, Some(early.encode().1)).seconds,
            MIN_SECONDS
        );
        assert_eq!(early.encode_short(), 0x8000_0000);
    }
}
