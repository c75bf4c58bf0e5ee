//! Conversion between timestamps of the format and of `std`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use throughline_ext::Timestamp;

/// Lossless: `SystemTime` has a larger range than an inode.
pub(crate) fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    let nanos = Duration::from_nanos(time.nanoseconds.into());
    whole
        .and_then(|whole| whole.checked_add(nanos))
        .unwrap_or(UNIX_EPOCH)
}

/// Times out of range are clamped.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp {
            seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs())
                .unwrap_or(i64::MAX)
                .saturating_neg();
            match before.subsec_nanos() {
                0 => Timestamp {
                    seconds,
                    nanoseconds: 0,
                },
                nanos => Timestamp {
                    seconds: seconds.saturating_sub(1),
                    nanoseconds: 1_000_000_000 - nanos,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip() {
        for (seconds, nanoseconds) in [
            (0, 0),
            (1, 999_999_999),
            (-1, 0),
            (-1, 1),
            (-2_147_483_648, 5),
            (15_032_385_535, 7),
        ] {
            let time = Timestamp {
                seconds,
                nanoseconds,
            };
            assert_eq!(timestamp(system_time(time)), time);
        }
    }
}
