//! Values of extended attributes as text: `"text"`, `0x68656c6c6f`, `0saGVsbG8=`, as getfattr prints and
//! setfattr parses them.

use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};

/// The encoding of a value in output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Text in double quotes, with escapes.
    Text,
    /// Hexadecimal, with the prefix 0x.
    Hex,
    /// Base64, with the prefix 0s.
    Base64,
}

/// As in setfattr, the unused bits of the last digit may have any value.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

impl Encoding {
    /// The most readable encoding: text, unless more than an eighth of it is unprintable.
    pub fn fitting(value: &[u8]) -> Encoding {
        let text = value.strip_suffix(&[0]).unwrap_or(value);
        let unprintable = text
            .iter()
            .filter(|byte| !matches!(byte, 0x20..=0x7e))
            .count();
        match unprintable.saturating_mul(8) > text.len() {
            true => Encoding::Base64,
            false => Encoding::Text,
        }
    }

    /// The value in this encoding.
    pub fn show(self, value: &[u8]) -> Vec<u8> {
        match self {
            Encoding::Text => quoted(value),
            Encoding::Hex => {
                let digits = value.iter().map(|byte| format!("{byte:02x}"));
                format!("0x{}", digits.collect::<String>()).into_bytes()
            }
            Encoding::Base64 => format!("0s{}", BASE64.encode(value)).into_bytes(),
        }
    }
}

/// The value in double quotes. As in getfattr, a trailing zero byte, which ends a string in C, is omitted.
fn quoted(value: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for byte in value.strip_suffix(&[0]).unwrap_or(value) {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            0 | b'\n' | b'\r' => out.extend(format!("\\{byte:03o}").bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
    out
}

/// Parses a value as setfattr does: hexadecimal, base64, quoted text with escapes, or bare text.
pub fn parse(text: &[u8]) -> Result<Vec<u8>, String> {
    if let Some(digits) = strip(text, b"0x") {
        return hex(digits).ok_or_else(|| "not hexadecimal after 0x".to_owned());
    }
    if let Some(digits) = strip(text, b"0s") {
        return unbase64(digits).ok_or_else(|| "not base64 after 0s".to_owned());
    }
    match text {
        [b'"', inside @ .., b'"'] => Ok(unescaped(inside)),
        bare => Ok(unescaped(bare)),
    }
}

fn strip<'t>(text: &'t [u8], prefix: &[u8; 2]) -> Option<&'t [u8]> {
    let (start, rest) = text.split_at_checked(2)?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

fn hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let digits: Vec<u8> = digits
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    digits
        .chunks(2)
        .map(|two| match two {
            [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
            _ => None,
        })
        .collect()
}

fn unbase64(text: &[u8]) -> Option<Vec<u8>> {
    let is_digit = |byte: &u8| !byte.is_ascii_whitespace();
    let digits: Vec<u8> = text.iter().copied().filter(is_digit).collect();
    BASE64.decode(digits).ok()
}

/// Resolves escapes: `\012` is the byte with this octal value; `\` before any other character is dropped.
pub fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (first, behind) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            (b'\\', [next, tail @ ..]) => {
                out.push(*next);
                rest = tail;
            }
            _ => out.push(*first),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        for value in [
            &b""[..],
            b"a",
            b"ab",
            b"abc",
            b"te\"x\\t\n\0\r",
            &[0, 255, 254, 7],
        ] {
            for encoding in [Encoding::Text, Encoding::Hex, Encoding::Base64] {
                let shown = encoding.show(value);
                assert_eq!(parse(&shown).as_deref(), Ok(value), "{encoding:?}");
            }
        }
        assert_eq!(Encoding::Base64.show(b"hello"), b"0saGVsbG8=");
        assert_eq!(parse(b"0saGVs bG9=").as_deref(), Ok(&b"hello"[..]));
    }

    #[test]
    fn rubbish_is_refused() {
        for text in ["0x1", "0xzz", "0sab", "0sa=bc", "0s====", "0s!!!!"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn readable_values_are_shown_as_text() {
        assert_eq!(Encoding::fitting(b"plain text\0"), Encoding::Text);
        assert_eq!(Encoding::fitting(b"a\nb"), Encoding::Base64);
        assert_eq!(Encoding::fitting(b""), Encoding::Text);
    }
}
