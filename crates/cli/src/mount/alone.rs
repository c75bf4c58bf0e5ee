//! A mount that nobody can come to any more, as its mount namespace has no process left but its server.
//!
//! The kernel takes mounts away with the last process of their namespace. A server in the background is one of these itself: its
//! mount would be there for good, and its image in use (`unshare -m sh -c 'throughline mount …'`). So it looks around, and ends.
//!
//! Invariant: it stays where it cannot see who is in the namespace, and where the namespace or the mount is to be had in another way.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use throughline_fuse::mounts;

use super::end::End;

/// Between two looks. The second one sees what was being started during the first.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS: u32 = 2;

/// Ends the server of the mount at `dir` once it is alone with it, if that can be told here.
pub(super) fn watch(dir: &Path, end: End) {
    let Some(place) = Namespace::to_watch() else {
        return;
    };
    let dir = dir.to_owned();
    thread::spawn(move || {
        let mut alone = 0;
        while alone < LOOKS {
            thread::sleep(LOOK);
            let now = place.is_deserted() && is_private(&dir);
            alone = if now { alone + 1 } else { 0 };
        }
        tracing::warn!("no process is left that sees the mount: unmounting");
        end.ask();
    });
}

/// The mount is not shown in other namespaces.
fn is_private(dir: &Path) -> bool {
    matches!(mounts::at(dir), Ok(Some(mount)) if !mount.shared)
}

/// A mount namespace, by the kernel's name of it: `mnt:[4026532178]`.
struct Namespace {
    name: PathBuf,
}

/// Where a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lives {
    Here,
    Elsewhere,
    /// It may be here.
    Unknown,
}

impl Namespace {
    /// Ours, if the system goes on without it, and it can be seen who is in it.
    fn to_watch() -> Option<Namespace> {
        let name = fs::read_link("/proc/self/ns/mnt").ok()?;
        let place = Namespace { name };
        let proc = mounts::at(Path::new("/proc")).ok()??;
        let hides = proc.options.contains("hidepid=");
        let first = place.of(Path::new("/proc/1"));
        (first == Lives::Elsewhere && !hides).then_some(place)
    }

    /// By the name of its namespace, or, where that is not told to us, by its mounts: no two in the system have the same number.
    fn of(&self, process: &Path) -> Lives {
        match fs::read_link(process.join("ns/mnt")) {
            Ok(name) if name == self.name => return Lives::Here,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            // Also one that has ended since.
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

    /// No process but this one and its children is in it, or has it to go back to.
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

    /// The process has it open, or sees it mounted as a file.
    fn is_kept_by(&self, process: &Path) -> bool {
        let name = self.name.to_string_lossy();
        let opened = fs::read_dir(process.join("fd")).into_iter().flatten();
        let mut links = opened.flatten().flat_map(|fd| fs::read_link(fd.path()));
        let list = fs::read(process.join("mountinfo")).unwrap_or_default();
        links.any(|link| link == self.name) || String::from_utf8_lossy(&list).contains(&*name)
    }
}

/// The numbers of the mounts that a process sees.
fn numbers(process: &Path) -> HashSet<u64> {
    let list = fs::read(process.join("mountinfo")).unwrap_or_default();
    let list = String::from_utf8_lossy(&list);
    let first = |line: &str| line.split(' ').next()?.parse().ok();
    list.lines().filter_map(first).collect()
}

/// The process that started it.
fn parent(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}
