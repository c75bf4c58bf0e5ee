//! The kernel's lists of mounts: where block devices are mounted, in this process's mount namespace or in
//! another one that it may read, and which paths lead to a server in user space.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, major, makedev, minor, openat2};

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
    let own = fs::read("/proc/self/mountinfo");
    if let Some(point) = own.ok().and_then(|list| point(&list, &wanted)) {
        return Some(Place {
            point,
            seen_by: None,
        });
    }
    other_namespaces().find_map(|(process, list)| {
        Some(Place {
            point: point(&list, &wanted)?,
            seen_by: Some(process),
        })
    })
}

/// Of each other mount namespace the first process that may be looked at, as `process 12 (sh)`, and its list
/// of mounts (`mountinfo`).
pub fn other_namespaces() -> impl Iterator<Item = (String, Vec<u8>)> {
    let mut seen = HashSet::new();
    seen.extend(fs::read_link("/proc/self/ns/mnt"));
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(move |entry| {
        let process = entry.path();
        let namespace = fs::read_link(process.join("ns/mnt")).ok()?;
        if !seen.insert(namespace) {
            return None;
        }
        let list = fs::read(process.join("mountinfo")).ok()?;
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let pid = entry.file_name();
        let process = format!("process {} ({})", pid.to_string_lossy(), name.trim_end());
        Some((process, list))
    })
}

/// The mount point of a wanted device in a list of mounts, whose lines are `36 35 98:0 /root /point …`.
fn point(list: &[u8], wanted: &[String]) -> Option<String> {
    list.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let device = fields.next()?;
        let is_it = wanted.iter().any(|wanted| wanted.as_bytes() == device);
        let point = fields.nth(1).filter(|_| is_it)?;
        Some(unescaped(point).to_string_lossy().into_owned())
    })
}

/// The device of one of this process's mounts, by the mount's number.
pub(super) fn device_of(mount: &str) -> Option<u64> {
    let list = fs::read("/proc/self/mountinfo").ok()?;
    String::from_utf8_lossy(&list).lines().find_map(|line| {
        let mut fields = line.split(' ');
        let is_it = fields.next()? == mount;
        let (major, minor) = fields.nth(1).filter(|_| is_it)?.split_once(':')?;
        Some(makedev(major.parse().ok()?, minor.parse().ok()?))
    })
}

/// Opens what a path in one of the kernel's lists names (`O_PATH`), unless that leads to a server in user
/// space other than the one of the file system `own`, which this process uses anyway. The path has no
/// symbolic links.
pub(super) fn listed(path: &Path, own: u64) -> Option<OwnedFd> {
    if asks_another_server(&fs::read("/proc/self/mountinfo").ok()?, path, own) {
        return None;
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()
}

/// Whether a path is in a FUSE mount of another file system than `own`, by a list of mounts with lines
/// `36 35 98:0 /root /point options tags - type source options`.
fn asks_another_server(list: &[u8], path: &Path, own: u64) -> bool {
    let own = format!("{}:{}", major(own), minor(own));
    // A mount covers those before it.
    let mut covers = list.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let device = fields.next()?;
        let point = unescaped(fields.nth(1)?);
        let fs_type = fields.skip_while(|field| *field != b"-").nth(1)?;
        path.starts_with(&point).then_some((device, fs_type))
    });
    covers.next_back().is_some_and(|(device, fs_type)| {
        let kind = fs_type.split(|byte| *byte == b'.').next();
        matches!(kind, Some(b"fuse" | b"fuseblk")) && device != own.as_bytes()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_to_servers_are_known() {
        let list = b"1 0 8:1 / / rw - ext4 /dev/root rw\n\
            2 1 0:51 / /mnt/a\\040b rw shared:7 master:1 - fuse.throughline /img rw\n\
            3 1 0:52 / /mnt/covered rw - fuseblk /dev/sdb rw\n\
            4 1 0:53 / /mnt/covered rw - tmpfs none rw\n\
            short";
        let asks = |path: &str, own| asks_another_server(list, Path::new(path), own);
        let root = makedev(8, 1);
        assert!(asks("/mnt/a b/file", root));
        assert!(!asks("/mnt/a b/file", makedev(0, 51)), "our own");
        assert!(!asks("/mnt/a b c", root), "another name");
        assert!(!asks("/mnt/covered/file", root));
        assert!(!asks("/file", root));
        assert!(!asks("relative", root));
    }
}
