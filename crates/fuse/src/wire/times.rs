//! Times of the protocol: seconds since 1970, and nanoseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since 1970, rounded down, and the nanoseconds after them.
pub(crate) fn wire_time(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs().cast_signed(), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let seconds = before.as_secs().cast_signed().saturating_neg();
            match before.subsec_nanos() {
                0 => (seconds, 0),
                ns => (seconds.saturating_sub(1), 1_000_000_000 - ns),
            }
        }
    }
}

/// The reverse of [`wire_time`]; `None` if the system cannot represent the time.
pub(crate) fn std_time(seconds: i64, ns: u32) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    start?.checked_add(Duration::from_nanos(ns.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_wire() {
        for (seconds, ns) in [
            (0, 0),
            (1, 999_999_999),
            (-1, 1),
            (-2_147_483_648, 0),
            (-5, 999_999_999),
        ] {
            let time = std_time(seconds, ns).unwrap();
            assert_eq!(wire_time(time), (seconds, ns));
        }
    }
}
