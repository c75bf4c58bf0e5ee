//! Finds where block devices are mounted: in this process's mount namespace, or in another one that it may
//! read.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// A mount point.
pub(super) struct Place {
    /// The directory.
    pub(super) point: String,
    /// A process in whose mount namespace it is, if it is not in ours.
    seen_by: Option<String>,
}

/// `/mnt`, or `/mnt, in the mount namespace of process 12 (sh)`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.point)?;
        match &self.seen_by {
            Some(process) => write!(f, ", in the mount namespace of {process}"),
            None => Ok(()),
        }
    }
}

/// The mount point of one of the block devices.
pub(super) fn place(devices: &[u64]) -> Option<Place> {
    let wanted: Vec<String> = devices
        .iter()
        .map(|device| format!("{}:{}", major(*device), minor(*device)))
        .collect();
    if let Some(point) = point(Path::new("/proc/self"), &wanted) {
        return Some(Place {
            point,
            seen_by: None,
        });
    }
    let mut seen = HashSet::new();
    seen.extend(fs::read_link("/proc/self/ns/mnt"));
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.map(|entry| entry.path()).find_map(|process| {
        let namespace = fs::read_link(process.join("ns/mnt")).ok()?;
        if !seen.insert(namespace) {
            return None;
        }
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let pid = process.file_name()?.to_string_lossy().into_owned();
        Some(Place {
            point: point(&process, &wanted)?,
            seen_by: Some(format!("process {pid} ({})", name.trim_end())),
        })
    })
}

/// The mount point of a wanted device in a process's list, whose lines are `36 35 98:0 /root /point …`.
fn point(process: &Path, wanted: &[String]) -> Option<String> {
    let list = fs::read(process.join("mountinfo")).ok()?;
    list.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let device = fields.next()?;
        let is_it = wanted.iter().any(|wanted| wanted.as_bytes() == device);
        let point = fields.nth(1).filter(|_| is_it)?;
        Some(unescaped(point).to_string_lossy().into_owned())
    })
}

/// Decodes a field of one of the kernel's lists, in which blanks, line ends and backslashes are escaped as in
/// `\040`.
pub fn unescaped(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        let escaped = match behind {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = &rest[if escaped.is_some() { 4 } else { 1 }..];
    }
    OsString::from_vec(bytes)
}
