//! `-printf`: a line in a given format for each file, with the directives of find(1).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::SystemTime;

use crate::format::{Asked, Value};
use crate::kind::letter;
use crate::mode::show;
use crate::owner::Names;
use crate::time::{ctime, part, seconds_with_fraction};
use throughline::{FileType, Metadata};

/// The input of the directives.
pub struct Subject<'a> {
    /// The path as shown.
    pub path: &'a OsStr,
    /// The starting point, as given on the command line.
    pub start: &'a OsStr,
    /// The number of directories above it, the start included.
    pub depth: usize,
    /// Its attributes.
    pub meta: &'a Metadata,
    /// The host's names of users and groups.
    pub names: &'a Names,
    /// The target of a symbolic link.
    pub target: &'a dyn Fn() -> Option<OsString>,
    /// The kind after following symbolic links; `None` if nothing is there.
    pub followed: &'a dyn Fn() -> Option<FileType>,
}

/// The letter of `%y`.
fn kind(of: FileType) -> String {
    match letter(of) {
        '-' => 'f',
        letter => letter,
    }
    .to_string()
}

/// The time selected by a letter.
fn time(code: u8, meta: &Metadata) -> Option<SystemTime> {
    match code.to_ascii_uppercase() {
        b'A' => Some(meta.accessed()),
        b'C' => Some(meta.changed()),
        b'T' => Some(meta.modified()),
        b'B' => meta.created(),
        _ => None,
    }
}

/// The value of a directive; `None` if find has no such directive.
pub fn value(asked: &Asked<'_>, subject: &Subject<'_>) -> Option<Value> {
    let meta = subject.meta;
    let path = subject.path.as_bytes();
    // The parts after and before the last slash.
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let (dir, name) = path.split_at(slash);
    let text = match asked.code {
        b'p' => return Some(Value::text(path)),
        b'h' => return Some(Value::text(dir)),
        b'f' => {
            let name = name.strip_prefix(b"/").filter(|name| !name.is_empty());
            return Some(Value::text(name.unwrap_or(b"/")));
        }
        b'H' => return Some(Value::text(subject.start.as_bytes())),
        b'P' => {
            let below = path.strip_prefix(subject.start.as_bytes());
            let below = below.unwrap_or_default();
            return Some(Value::text(below.strip_prefix(b"/").unwrap_or(below)));
        }
        b'l' => {
            let target = (subject.target)().unwrap_or_default();
            return Some(Value::text(target.into_vec()));
        }
        b'd' => subject.depth.to_string(),
        b's' => meta.len().to_string(),
        b'b' => meta.blocks_512().to_string(),
        b'k' => meta.blocks_512().div_ceil(2).to_string(),
        b'i' => meta.ino().to_string(),
        b'n' => meta.nlink().to_string(),
        b'm' => format!(
            "{}{:o}",
            if asked.alternate { "0" } else { "" },
            meta.mode()
        ),
        b'M' => show(letter(meta.file_type()), meta.mode()),
        b'U' => meta.uid().to_string(),
        b'u' => subject.names.user_or_number(meta.uid()),
        b'G' => meta.gid().to_string(),
        b'g' => subject.names.group_or_number(meta.gid()),
        b'y' => kind(meta.file_type()),
        b'Y' => (subject.followed)().map_or_else(|| "N".to_owned(), kind),
        code @ (b'a' | b'c' | b't') => ctime(time(code, meta)?),
        code @ (b'A' | b'C' | b'T' | b'B') => {
            let key = *asked.rest.first()?;
            let text = match time(code, meta) {
                Some(time) if key == b'@' => seconds_with_fraction(time),
                Some(time) => part(time, key)?,
                None => String::new(),
            };
            return Some(Value {
                used: 1,
                ..Value::text(text)
            });
        }
        _ => return None,
    };
    Some(Value::text(text))
}
