//! `stat -c FORMAT`: the metadata of a file in a given format.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use crate::format::{self, Value};
use crate::mode::show;
use crate::owner::Names;
use crate::time::full;
use throughline::Metadata;
use throughline::internal::since_epoch;

use crate::kind::{letter, words};
use crate::text::quote;

/// The input of the directives.
pub struct Subject<'a> {
    /// The name as given.
    pub name: &'a OsStr,
    /// The target of a symbolic link.
    pub target: Option<&'a OsStr>,
    /// Its attributes.
    pub meta: &'a Metadata,
    /// The size of the volume's blocks.
    pub block_bytes: u32,
    /// The host's names of users and groups.
    pub names: &'a Names,
}

/// Expands a format. `escapes`: interpret `\n` and the other escapes of C, as `--printf` does.
pub fn fill(format: &OsStr, subject: &Subject<'_>, escapes: bool) -> Result<Vec<u8>, String> {
    format::fill(format.as_bytes(), escapes, |asked| {
        Some(Value {
            is_number: b"abBdfghiostTuwWXYZ".contains(&asked.code),
            ..Value::text(value(asked.code, subject, asked.alternate)?)
        })
    })
}

fn value(code: u8, subject: &Subject<'_>, alternate: bool) -> Option<Vec<u8>> {
    let meta = subject.meta;
    let named = |name: Option<Rc<str>>| name.as_deref().unwrap_or("UNKNOWN").to_owned();
    let device = |of: fn(throughline::DeviceNumber) -> u32| meta.device().map_or(0, of);
    let text = match code {
        b'a' => format!("{}{:o}", if alternate { "0" } else { "" }, meta.mode()),
        b'A' => show(letter(meta.file_type()), meta.mode()),
        b'b' => meta.blocks_512().to_string(),
        b'B' => "512".to_owned(),
        b'f' => format!("{:x}", meta.file_type().mode_bits() | meta.mode()),
        b'F' => words(meta).to_owned(),
        b'g' => meta.gid().to_string(),
        b'G' => named(subject.names.group(meta.gid())),
        b'h' => meta.nlink().to_string(),
        b'i' => meta.ino().to_string(),
        b'n' => return Some(subject.name.as_bytes().to_vec()),
        b'N' => match subject.target {
            Some(target) => format!("{} -> {}", quote(subject.name), quote(target)),
            None => quote(subject.name),
        },
        b'o' => subject.block_bytes.to_string(),
        b's' => meta.len().to_string(),
        b't' => format!("{:x}", device(|device| device.major)),
        b'T' => format!("{:x}", device(|device| device.minor)),
        b'u' => meta.uid().to_string(),
        b'U' => named(subject.names.user(meta.uid())),
        b'w' => meta.created().map_or_else(|| "-".to_owned(), full),
        b'W' => meta
            .created()
            .map_or(0, |time| since_epoch(time).0)
            .to_string(),
        b'x' => full(meta.accessed()),
        b'X' => since_epoch(meta.accessed()).0.to_string(),
        b'y' => full(meta.modified()),
        b'Y' => since_epoch(meta.modified()).0.to_string(),
        b'z' => full(meta.changed()),
        b'Z' => since_epoch(meta.changed()).0.to_string(),
        _ => return None,
    };
    Some(text.into_bytes())
}
