//! The words of a line: paths, numbers, flags, data.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bitflags::Flags;
use rustix::fs::Mode;

/// The words of a line, with escapes expanded.
pub(super) struct Words(Vec<Vec<u8>>);

impl Words {
    /// Splits a line; `fd_path` returns the path of an open file.
    pub(super) fn new(line: &str, fd_path: &dyn Fn(&str) -> String) -> Self {
        Self(
            line.split_whitespace()
                .map(|word| expand(word, fd_path))
                .collect(),
        )
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn bytes(&self, at: usize) -> &[u8] {
        self.0
            .get(at)
            .unwrap_or_else(|| panic!("{} has no word {at}", self.text(0)))
    }

    pub(super) fn text(&self, at: usize) -> &str {
        std::str::from_utf8(self.bytes(at)).expect("a word of plain text")
    }

    /// The word, or an empty string if the line is shorter.
    pub(super) fn text_or_empty(&self, at: usize) -> &str {
        if at < self.count() { self.text(at) } else { "" }
    }

    pub(super) fn path(&self, at: usize) -> &Path {
        Path::new(OsStr::from_bytes(self.bytes(at)))
    }

    pub(super) fn number(&self, at: usize) -> u64 {
        number(self.text(at))
    }

    /// An octal mode.
    pub(super) fn mode(&self, at: usize) -> Mode {
        let bits = u32::from_str_radix(self.text(at), 8);
        Mode::from_raw_mode(bits.expect("a mode in octal"))
    }

    /// An id; `-` means unchanged.
    pub(super) fn id(&self, at: usize) -> Option<u32> {
        let text = self.text(at);
        (text != "-").then(|| text.parse().expect("an id"))
    }

    /// Comma-separated flag names of rustix, or bits as `0x10`; no flags if the line is shorter.
    pub(super) fn flags<F: Flags<Bits = u32>>(&self, at: usize) -> F {
        let mut flags = F::empty();
        for name in self.text_or_empty(at).split(',').filter(|n| !n.is_empty()) {
            let one = match name.strip_prefix("0x") {
                Some(bits) => F::from_bits_retain(u32::from_str_radix(bits, 16).expect("bits")),
                None => F::from_name(name).unwrap_or_else(|| panic!("no flag {name}")),
            };
            flags.insert(one);
        }
        flags
    }

    /// Bytes to write: `ab*10+c` is `ab` ten times, then `c`.
    pub(super) fn data(&self, at: usize) -> Vec<u8> {
        let mut data = Vec::new();
        for part in self.bytes(at).split(|byte| *byte == b'+') {
            match part.iter().rposition(|byte| *byte == b'*') {
                Some(star) => {
                    let times = std::str::from_utf8(&part[star + 1..]).expect("a number");
                    let times = usize::try_from(number(times)).expect("a length");
                    data.extend(part[..star].repeat(times));
                }
                None => data.extend_from_slice(part),
            }
        }
        data
    }
}

/// A number, with suffix `k`, `M`, `G` or `T` for powers of 1024, or prefix `0x` for hexadecimal.
pub(super) fn number(text: &str) -> u64 {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).expect("a number");
    }
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        Some(b'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number: u64 = digits
        .parse()
        .unwrap_or_else(|_| panic!("not a number: {text}"));
    number << shift
}

fn expand(word: &str, fd_path: &dyn Fn(&str) -> String) -> Vec<u8> {
    if word == "''" {
        return Vec::new();
    }
    let mut expanded = Vec::new();
    let mut rest = word;
    while let Some(at) = rest.find(['{', '%']) {
        expanded.extend_from_slice(&rest.as_bytes()[..at]);
        if rest.as_bytes()[at] == b'%' {
            let byte = u8::from_str_radix(&rest[at + 1..at + 3], 16).expect("%HH");
            expanded.push(byte);
            rest = &rest[at + 3..];
            continue;
        }
        let end = at + closing(&rest[at..]);
        let inside = &rest[at + 1..end];
        if let Some(name) = inside.strip_prefix("fd:") {
            expanded.extend_from_slice(fd_path(name).as_bytes());
        } else {
            let (what, times) = inside.rsplit_once('*').expect("{x*9} or {fd:a}");
            let times = usize::try_from(number(times)).expect("a length");
            expanded.extend(expand(what, fd_path).repeat(times));
        }
        rest = &rest[end + 1..];
    }
    expanded.extend_from_slice(rest.as_bytes());
    expanded
}

/// Position of the brace that closes the one at the start of the text.
fn closing(text: &str) -> usize {
    let mut open = 0;
    let closes = text.char_indices().find(|(_, c)| {
        match c {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        open == 0
    });
    closes.expect("a closing brace").0
}

/// Maximum number of runs of equal bytes that are printed in full.
const RUNS: usize = 24;

/// Bytes as printed in answers: runs as `a*4096`, unprintable bytes as `%00`, long data as a digest.
pub(super) fn printed(data: &[u8]) -> String {
    let runs: Vec<&[u8]> = data.chunk_by(|a, b| a == b).collect();
    if runs.len() > RUNS && data.len() > 128 {
        return format!("{} bytes of digest {:016x}", data.len(), digest(data));
    }
    let mut text = String::new();
    for run in runs {
        let byte = match run[0] {
            byte if byte.is_ascii_graphic() && !b"%*".contains(&byte) => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02x}"),
        };
        if run.len() < 4 {
            text.push_str(&byte.repeat(run.len()));
        } else {
            write!(text, "({byte}*{})", run.len()).expect("a string can grow");
        }
    }
    text
}

/// FNV-1a: sufficient to detect differences.
fn digest(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
