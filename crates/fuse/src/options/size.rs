//! Numbers with units: offsets, seconds.

use std::time::Duration;

use throughline::internal::parse_size;

/// The longest commit interval, in seconds: a crash should not lose more than an hour.
pub const MAX_COMMIT_SECONDS: u32 = 3600;

/// The start of a volume in bytes. `0x…` is accepted too: `fuse2fs` parses with the C library.
pub(super) fn parse_offset(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).map_err(|_| "write a number of bytes".to_owned())
        }
        _ => parse_size(text),
    }
}

/// A commit interval; 0 means the default, as in the kernel's ext4.
pub(super) fn parse_seconds(text: &str) -> Result<Option<Duration>, String> {
    match text.parse::<u32>() {
        Ok(0) => Ok(None),
        Ok(seconds) if seconds <= MAX_COMMIT_SECONDS => {
            Ok(Some(Duration::from_secs(seconds.into())))
        }
        _ => Err(format!(
            "write a number of seconds, {MAX_COMMIT_SECONDS} at most"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_read() {
        assert_eq!(parse_offset("2048s"), Ok(1 << 20));
        assert_eq!(parse_offset("0x100000"), Ok(1 << 20));
        assert!(parse_offset("0x").is_err());
        assert!(parse_offset("0x+1").is_err());
    }

    #[test]
    fn seconds_read() {
        assert_eq!(parse_seconds("0"), Ok(None));
        assert_eq!(parse_seconds("30"), Ok(Some(Duration::from_secs(30))));
        for text in ["", "-1", "3601", "5s", "1.5"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
