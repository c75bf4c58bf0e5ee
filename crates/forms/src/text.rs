//! Names and numbers as text: quoting that is safe on a terminal, and human-readable sizes.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A name in single quotes, for a message. Control characters and bytes that are not UTF-8 are shown as in
/// the shell's `$'…'`, so that a hostile image cannot control the terminal.
pub fn quote(name: impl AsRef<OsStr>) -> String {
    let name = name.as_ref();
    match name.to_str() {
        Some(text) if !text.chars().any(is_unsafe) => {
            if text.contains('\'') && !text.contains('"') {
                format!("\"{text}\"")
            } else {
                format!("'{text}'")
            }
        }
        _ => {
            let mut out = String::from("$'");
            for chunk in name.as_bytes().utf8_chunks() {
                for c in chunk.valid().chars() {
                    match c {
                        '\n' => out.push_str("\\n"),
                        '\t' => out.push_str("\\t"),
                        '\'' => out.push_str("\\'"),
                        '\\' => out.push_str("\\\\"),
                        c if is_unsafe(c) => {
                            let mut bytes = [0u8; 4];
                            push_octal(&mut out, c.encode_utf8(&mut bytes).as_bytes());
                        }
                        c => out.push(c),
                    }
                }
                push_octal(&mut out, chunk.invalid());
            }
            out.push('\'');
            out
        }
    }
}

fn push_octal(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        out.push_str(&format!("\\{byte:03o}"));
    }
}

/// Whether a character must not be sent to a terminal: control characters, and those that reorder a line.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name for standard output: its own bytes to a pipe or file; on a terminal, `?` for each unsafe character,
/// as `ls` does.
pub fn printable(name: &OsStr, terminal: bool) -> Cow<'_, [u8]> {
    if !terminal {
        return Cow::Borrowed(name.as_bytes());
    }
    let text: String = name
        .to_string_lossy()
        .chars()
        .map(|c| if is_unsafe(c) { '?' } else { c })
        .collect();
    Cow::Owned(text.into_bytes())
}

/// A size as `ls -h` shows it: powers of 1024, rounded up, one decimal below 10.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit_bytes = 1024u128;
    for (index, unit) in UNITS.iter().enumerate() {
        let tenths = (u128::from(bytes) * 10).div_ceil(unit_bytes);
        let whole = u128::from(bytes).div_ceil(unit_bytes);
        if tenths < 100 {
            return format!("{}.{}{unit}", tenths / 10, tenths % 10);
        }
        if whole < 1024 || index + 1 == UNITS.len() {
            return format!("{whole}{unit}");
        }
        unit_bytes *= 1024;
    }
    unreachable!("the last unit always fits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting() {
        assert_eq!(quote("plain name"), "'plain name'");
        assert_eq!(quote("it's"), "\"it's\"");
        assert_eq!(quote("a\x1b[31m"), "$'a\\033[31m'");
        assert_eq!(quote(OsStr::from_bytes(b"a\xff\n")), "$'a\\377\\n'");
        assert_eq!(quote("a\u{202e}b"), "$'a\\342\\200\\256b'");
        assert_eq!(&*printable(OsStr::new("a\x1bb"), true), b"a?b");
        assert_eq!(&*printable(OsStr::from_bytes(b"a\xff"), false), b"a\xff");
    }

    #[test]
    fn sizes_shown_as_coreutils_does() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 * 1024, "10K"),
            (10 * 1024 + 1, "11K"),
            (1023 * 1024 + 1, "1.0M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }
}
