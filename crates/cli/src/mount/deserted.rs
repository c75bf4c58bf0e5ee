//! Ends a background server whose mount is unreachable because only the server is left in its mount
//! namespace.
//!
//! The kernel removes mounts with the last process of their namespace. The server itself is such a process:
//! its mount would stay, and its image in use, forever (`unshare -m sh -c 'throughline mount …'`). So the
//! server checks periodically whether other processes are left, and ends if not.
//!
//! Invariant: the server does not end if the processes in the namespace are not visible to it, or if the
//! namespace or the mount can be reached in another way.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use throughline_fuse::mounts;

use super::end::End;

/// Interval between two checks. The second check detects processes that were starting during the first.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS: u32 = 2;

/// Ends the server of the mount at `dir` once no other process can reach the mount, if that can be
/// determined.
pub(super) fn watch(dir: &Path, end: End) {
    let Some(place) = Namespace::to_watch() else {
        return;
    };
    let dir = dir.to_owned();
    thread::spawn(move || {
        let mut in_a_row = 0;
        while in_a_row < LOOKS {
            thread::sleep(LOOK);
            let now = place.is_deserted() && is_private(&dir);
            in_a_row = if now { in_a_row + 1 } else { 0 };
        }
        tracing::warn!("no process is left in the mount's namespace: unmounting");
        end.ask();
    });
}

/// Whether the mount is not shared with other namespaces.
fn is_private(dir: &Path) -> bool {
    matches!(mounts::at(dir), Ok(Some(mount)) if !mount.shared)
}

/// A mount namespace, identified by its name in the kernel: `mnt:[4026532178]`.
struct Namespace {
    name: PathBuf,
}

/// Whether a process is in the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lives {
    Here,
    Elsewhere,
    /// It may be in the namespace.
    Unknown,
}

impl Namespace {
    /// This process's namespace, provided that it is not that of PID 1 and that the processes in it are
    /// visible.
    fn to_watch() -> Option<Namespace> {
        let name = fs::read_link("/proc/self/ns/mnt").ok()?;
        let place = Namespace { name };
        let proc = mounts::at(Path::new("/proc")).ok()??;
        let hides = proc.options.contains("hidepid=");
        let first = place.of(Path::new("/proc/1"));
        (first == Lives::Elsewhere && !hides).then_some(place)
    }

    /// Compares the names of the namespaces or, if access is denied, the mount IDs, which are unique in the
    /// system.
    fn of(&self, process: &Path) -> Lives {
        match fs::read_link(process.join("ns/mnt")) {
            Ok(name) if name == self.name => return Lives::Here,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            // This includes a process that has since ended.
            _ => return Lives::Elsewhere,
        }
        let ours = numbers(Path::new("/proc/self"));
        let theirs = numbers(process);
        if theirs.is_empty() || ours.is_empty() {
            Lives::Unknown
        } else if theirs.is_disjoint(&ours) {
            Lives::Elsewhere
        } else {
            Lives::Here
        }
    }

    /// Whether no process other than this one and its children is in the namespace or can enter it.
    fn is_deserted(&self) -> bool {
        let Ok(all) = fs::read_dir("/proc") else {
            return false;
        };
        let me = std::process::id();
        let others: Vec<PathBuf> = all
            .flatten()
            .filter(|entry| {
                let name = entry.file_name();
                let pid = name.to_str().and_then(|name| name.parse::<u32>().ok());
                pid.is_some_and(|pid| pid != me)
            })
            .map(|entry| entry.path())
            .collect();
        let at_home = |process: &PathBuf| self.of(process) != Lives::Elsewhere;
        let deserted = !others
            .iter()
            .any(|process| at_home(process) && parent(process) != Some(me));
        deserted && !others.iter().any(|process| self.is_kept_by(process))
    }

    /// Whether the process has the namespace open or sees it mounted as a file.
    fn is_kept_by(&self, process: &Path) -> bool {
        let name = self.name.to_string_lossy();
        let opened = fs::read_dir(process.join("fd")).into_iter().flatten();
        let mut links = opened.flatten().flat_map(|fd| fs::read_link(fd.path()));
        let list = fs::read(process.join("mountinfo")).unwrap_or_default();
        links.any(|link| link == self.name) || String::from_utf8_lossy(&list).contains(&*name)
    }
}

/// The IDs of the mounts that are visible to a process.
fn numbers(process: &Path) -> HashSet<u64> {
    let list = fs::read(process.join("mountinfo")).unwrap_or_default();
    let list = String::from_utf8_lossy(&list);
    let first = |line: &str| line.split(' ').next()?.parse().ok();
    list.lines().filter_map(first).collect()
}

/// The parent of a process.
fn parent(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}
