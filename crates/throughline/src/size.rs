//! Parses sizes with units.

/// Parses `123`, `4k`, `4K`, `4KiB` (all 1024), `4kB`/`4KB` (1000), likewise M, G, T, P, and `8s` (sectors of
/// 512 bytes).
///
/// # Errors
/// A message with the expected form, if `text` is malformed or the size does not fit in 64 bits.
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
    }
}
