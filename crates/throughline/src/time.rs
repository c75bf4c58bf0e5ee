//! Conversions between times of `std`, and seconds since 1970 with nanoseconds, as the format, the system and
//! FUSE have them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use throughline_ext::Timestamp;

/// Lossless: `SystemTime` has a larger range than an inode.
pub(crate) fn system_time(time: Timestamp) -> SystemTime {
    from_epoch(time.seconds, time.nanoseconds).unwrap_or(UNIX_EPOCH)
}

/// Times out of range are clamped.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let (seconds, nanoseconds) = since_epoch(time);
    Timestamp {
        seconds,
        nanoseconds,
    }
}

/// Whole seconds since 1970, rounded down and clamped, and the nanoseconds after them.
pub fn since_epoch(time: SystemTime) -> (i64, u32) {
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (seconds(after), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match (-seconds(before), before.subsec_nanos()) {
                (whole, 0) => (whole, 0),
                (whole, nanos) => (whole.saturating_sub(1), 1_000_000_000 - nanos),
            }
        }
    }
}

/// The reverse of [`since_epoch`]; `None` if the system cannot represent the time.
pub fn from_epoch(seconds: i64, nanoseconds: u32) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let whole = match seconds < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    whole?.checked_add(Duration::from_nanos(nanoseconds.into()))
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
            (-5, 999_999_999),
            (-2_147_483_648, 0),
            (-2_147_483_648, 5),
            (15_032_385_535, 7),
        ] {
            let time = from_epoch(seconds, nanoseconds).unwrap();
            assert_eq!(since_epoch(time), (seconds, nanoseconds));
            let stored = timestamp(time);
            assert_eq!((stored.seconds, stored.nanoseconds), (seconds, nanoseconds));
            assert_eq!(system_time(stored), time);
        }
    }
}
