//! Format strings as stat and find take them: literal text, escapes, and directives such as `%-10s`.

/// Maximum width.
const MAX_WIDTH: usize = 4096;

/// A directive after its `%`, flags and width.
pub struct Asked<'f> {
    /// Its letter.
    pub code: u8,
    /// The text after the letter.
    pub rest: &'f [u8],
    /// Whether it has the flag `#`.
    pub alternate: bool,
}

/// The value of a directive.
pub struct Value {
    /// The text that replaces the directive.
    pub text: Vec<u8>,
    /// Whether it is a number, which the flag `0` pads with zeros.
    pub is_number: bool,
    /// Number of bytes after the letter that belong to the directive.
    pub used: usize,
}

impl Value {
    /// Text for a directive of one letter.
    pub fn text(text: impl Into<Vec<u8>>) -> Value {
        Value {
            text: text.into(),
            is_number: false,
            used: 0,
        }
    }
}

/// Expands a format. `escapes`: interpret `\n`, `\012` and the other escapes of C; `\c` ends the output.
pub fn fill(
    format: &[u8],
    escapes: bool,
    mut value: impl FnMut(&Asked<'_>) -> Option<Value>,
) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = format;
    while let [first, behind @ ..] = rest {
        rest = match (first, behind) {
            (b'%', _) => directive(behind, &mut value, &mut out)?,
            (b'\\', [b'c', ..]) if escapes => break,
            (b'\\', [_, ..]) if escapes => escape(behind, &mut out),
            _ => {
                out.push(*first);
                behind
            }
        };
    }
    Ok(out)
}

/// Expands an escape after its backslash. Returns the rest.
fn escape<'f>(text: &'f [u8], out: &mut Vec<u8>) -> &'f [u8] {
    let is_octal = |byte: &&u8| matches!(byte, b'0'..=b'7');
    let digits = text.iter().take(3).take_while(is_octal).count();
    if digits > 0 {
        let (digits, rest) = text.split_at(digits);
        let code = digits
            .iter()
            .fold(0u32, |code, digit| code << 3 | u32::from(digit - b'0'));
        out.push(code as u8);
        return rest;
    }
    let (code, rest) = text.split_first().unwrap_or((&b'\\', &[]));
    out.push(match code {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'a' => 7,
        b'b' => 8,
        b'e' => 0x1b,
        b'f' => 12,
        b'v' => 11,
        other => *other,
    });
    rest
}

/// Expands a directive after its `%`. Returns the rest.
fn directive<'f>(
    text: &'f [u8],
    value: &mut impl FnMut(&Asked<'_>) -> Option<Value>,
    out: &mut Vec<u8>,
) -> Result<&'f [u8], String> {
    let flags = text
        .iter()
        .take_while(|byte| b"-0#+ ".contains(byte))
        .count();
    let (flags, rest) = text.split_at(flags);
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (width, rest) = rest.split_at(digits);
    let width = std::str::from_utf8(width)
        .ok()
        .and_then(|width| width.parse().ok());
    let width: usize = width.unwrap_or(0).min(MAX_WIDTH);
    let Some((code, rest)) = rest.split_first() else {
        out.push(b'%');
        return Ok(rest);
    };
    let asked = Asked {
        code: *code,
        rest,
        alternate: flags.contains(&b'#'),
    };
    let value = match code {
        b'%' => Some(Value::text("%")),
        _ => value(&asked),
    };
    let value = value.ok_or_else(|| {
        let code = char::from(*code).escape_default();
        format!("invalid directive '%{code}'")
    })?;
    let missing = width.saturating_sub(value.text.len());
    let with = match flags.contains(&b'0') && value.is_number {
        true => b'0',
        false => b' ',
    };
    let fill = std::iter::repeat_n(with, missing);
    if flags.contains(&b'-') {
        out.extend_from_slice(&value.text);
        out.extend(std::iter::repeat_n(b' ', missing));
    } else {
        out.extend(fill);
        out.extend_from_slice(&value.text);
    }
    Ok(rest.get(value.used..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_filled() {
        let filled = |format: &str, escapes| {
            fill(format.as_bytes(), escapes, |asked| match asked.code {
                b'n' => Some(Value {
                    is_number: true,
                    ..Value::text("7")
                }),
                b's' => Some(Value::text("x")),
                b'T' => Some(Value {
                    used: 1,
                    ..Value::text(&asked.rest[..1])
                }),
                _ => None,
            })
            .map(|text| String::from_utf8(text).unwrap())
        };
        for (format, escapes, wanted) in [
            ("%3n|%-3n|%03n|%03s", false, "  7|7  |007|  x"),
            ("%% %", false, "% %"),
            ("%TY-", false, "Y-"),
            (r"a\tb\0101\\\q\cno", true, "a\tb\u{8}1\\q"),
            (r"\101\n", true, "A\n"),
            (r"\n\\", false, r"\n\\"),
            ("\\", true, "\\"),
        ] {
            assert_eq!(filled(format, escapes).as_deref(), Ok(wanted), "{format}");
        }
        assert!(filled("%q", false).is_err());
    }
}
