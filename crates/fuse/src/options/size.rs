//! Numbers with units: sizes, offsets, seconds.

use std::time::Duration;

/// The longest that changes may wait to be committed: nobody wants to lose more than an hour.
pub const MAX_COMMIT_SECONDS: u32 = 3600;

/// Reads `123`, `4k`, `4K`, `4KiB` (all 1024), `4kB`/`4KB` (1000), likewise M, G, T, P, and `8s` (sectors of
/// 512 bytes).
///
/// # Errors
/// What would be right, for what is no such number, and for what does not fit into 64 bits.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let bad = || "write a number of bytes with a unit such as K, M, G or s (sectors)".to_owned();
    let large = || "that is too large".to_owned();
    if number.is_empty() {
        return Err(bad());
    }
    let number: u64 = number.parse().map_err(|_| large())?;
    let (letter, rest) = unit.split_at(unit.chars().next().map_or(0, char::len_utf8));
    let base: u64 = match rest {
        "" | "iB" => 1024,
        "B" => 1000,
        _ => return Err(bad()),
    };
    let power = match letter {
        "" => 0,
        "s" if rest.is_empty() => return number.checked_mul(512).ok_or_else(large),
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        "t" | "T" => 4,
        "p" | "P" => 5,
        _ => return Err(bad()),
    };
    base.checked_pow(power)
        .and_then(|unit| number.checked_mul(unit))
        .ok_or_else(large)
}

/// Where a volume begins. `0x…` is read too: `fuse2fs` hands its number to the C library.
pub(super) fn parse_offset(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).map_err(|_| "write a number of bytes".to_owned())
        }
        _ => parse_size(text),
    }
}

/// A commit interval; 0 is the default, as the kernel's ext4 has it.
pub(super) fn parse_seconds(text: &str) -> Result<Option<Duration>, String> {
    match text.parse::<u32>() {
        Ok(0) => Ok(None),
        Ok(seconds) if seconds <= MAX_COMMIT_SECONDS => {
            Ok(Some(Duration::from_secs(seconds.into())))
        }
        _ => Err(format!(
            "write a number of seconds, {MAX_COMMIT_SECONDS} at the most"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("2048s", 1 << 20),
            ("4k", 4096),
            ("4KiB", 4096),
            ("4kB", 4000),
            ("1G", 1 << 30),
            ("8P", 8 << 50),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "K",
            "-1",
            "1.5G",
            "1X",
            "1KX",
            "1 K",
            "99999999999P",
            "ä",
            "1ä",
            "1sB",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
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
