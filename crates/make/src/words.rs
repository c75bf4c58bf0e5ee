//! Numbers and flags in the words of `-E` and `-J`.

use crate::error::{Error, Result};

/// A number of blocks, or with a unit (`K`, `M`, `G`, `T`: powers of 1024) of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    Blocks(u64),
    Bytes(u64),
}

impl Amount {
    /// In blocks, rounded down.
    pub(crate) fn blocks(self, block_bytes: u32) -> u64 {
        match self {
            Amount::Blocks(count) => count,
            Amount::Bytes(bytes) => bytes / u64::from(block_bytes),
        }
    }
}

/// The refusal of a word's value.
pub(crate) fn wrong(option: &str, word: &str, allowed: &str) -> Error {
    Error::invalid(format!("{option} {word}: {allowed}"))
}

/// Splits `name=value` words at commas; a word without a value has none.
pub(crate) fn split(words: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    words
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(|word| match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        })
}

/// A value that `parse` understands.
pub(crate) fn value<T>(
    option: &str,
    name: &str,
    value: Option<&str>,
    allowed: &str,
    parse: impl FnOnce(Option<&str>) -> Option<T>,
) -> Result<T> {
    parse(value).ok_or_else(|| {
        let text = value.unwrap_or_default();
        wrong(option, &format!("{name}={text}"), allowed)
    })
}

/// A whole number from `least` to `most`.
pub(crate) fn number(
    option: &str,
    name: &str,
    text: Option<&str>,
    least: u64,
    most: u64,
) -> Result<u64> {
    let allowed = format!("a number from {least} to {most} is needed");
    value(option, name, text, &allowed, |text| {
        let number = text?.parse().ok()?;
        (least..=most).contains(&number).then_some(number)
    })
}

/// 0 or 1; 1 if there is no value.
pub(crate) fn flag(option: &str, name: &str, value: Option<&str>) -> Result<bool> {
    match value {
        None => Ok(true),
        some => Ok(number(option, name, some, 0, 1)? == 1),
    }
}

/// A number of blocks, or of bytes with a unit.
pub(crate) fn amount(option: &str, name: &str, text: Option<&str>) -> Result<Amount> {
    let allowed = "a number of blocks, or of bytes with a unit (K, M, G, T), is needed";
    value(option, name, text, allowed, |text| parse_amount(text?))
}

/// Parses an [`Amount`].
pub(crate) fn parse_amount(text: &str) -> Option<Amount> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let shift = match unit {
        "" => return Some(Amount::Blocks(number)),
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift).map(Amount::Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        assert_eq!(parse_amount("12"), Some(Amount::Blocks(12)));
        assert_eq!(parse_amount("2M"), Some(Amount::Bytes(2 << 20)));
        assert_eq!(Amount::Bytes(5000).blocks(4096), 1);
        for text in ["", "k", "1X", "1.5G", "99999999999T", "-1"] {
            assert_eq!(parse_amount(text), None, "{text}");
        }
        assert_eq!(
            split("a, b=1,,c=").collect::<Vec<_>>(),
            [("a", None), ("b", Some("1")), ("c", Some(""))]
        );
        assert!(flag("-E", "x", None).unwrap() && !flag("-E", "x", Some("0")).unwrap());
        assert!(flag("-E", "x", Some("2")).is_err());
        assert!(number("-E", "x", None, 0, 9).is_err());
    }
}
