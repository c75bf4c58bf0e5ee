//! Ends a background server whose mount is unreachable because only the server is left in its mount
//! namespace.
//!
//! The kernel removes mounts with the last process of their namespace. The server itself is such a process:
//! its mount would stay, and its image in use, forever (`unshare -m sh -c 'throughline mount …'`). So the
//! server waits for the end of a process in the namespace, then looks for another one, and ends if there is
//! none. An idle mount thus costs no CPU time. A process that leaves the namespace without ending is
//! noticed when it ends.
//!
//! It runs in the server or, if that is in a sandbox, from which other processes are not visible enough, in
//! its keeper.
//!
//! Invariant: the server does not end if the processes in the namespace are not visible to it, or if the
//! namespace or the mount can be reached in another way.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use throughline_fuse::mounts;

/// Interval between two checks. The second check detects processes that were starting during the first.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS: u32 = 2;
/// The same while no process is left in the namespace, but something else keeps it, for whose end the kernel
/// offers no notification: an open file of another process, or a mount of the namespace.
const KEPT_LOOK: Duration = Duration::from_secs(10);
/// The name of the thread.
const THREAD: &str = "namespace";

/// Calls `end` once no process other than the server, this one and their children can reach the mount at
/// `dir`, if that can be determined.
pub(super) fn watch(dir: &Path, server: u32, end: impl FnOnce() + Send + 'static) {
    let Some(place) = Namespace::to_watch(server) else {
        return;
    };
    let dir = dir.to_owned();
    let watch = move || {
        let mut in_a_row = 0;
        while in_a_row < LOOKS {
            thread::sleep(LOOK);
            if let Some(process) = place.process() {
                in_a_row = 0;
                wait_for_end(&process);
            } else if place.is_deserted() && is_private(&dir) {
                in_a_row += 1;
            } else {
                in_a_row = 0;
                thread::sleep(KEPT_LOOK);
            }
        }
        end();
    };
    if let Err(error) = thread::Builder::new().name(THREAD.into()).spawn(watch) {
        tracing::warn!(%error, "the mount will outlast the other processes of its namespace");
    }
}

/// Returns when the process has ended.
fn wait_for_end(process: &OwnedFd) {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    // After an error or a signal, the caller looks again.
    let _ = poll(&mut fds, None);
}

/// Whether the mount is not shared with other namespaces.
fn is_private(dir: &Path) -> bool {
    matches!(mounts::at(dir), Ok(Some(mount)) if !mount.shared)
}

/// A mount namespace, identified by its name in the kernel: `mnt:[4026532178]`.
struct Namespace {
    name: PathBuf,
    /// The server and this process, which may be the same.
    own: [u32; 2],
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
    fn to_watch(server: u32) -> Option<Namespace> {
        let name = fs::read_link("/proc/self/ns/mnt").ok()?;
        let own = [server, std::process::id()];
        let place = Namespace { name, own };
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

    /// Whether a process is the server, this one, or a child of them.
    fn is_own(&self, process: &Path) -> bool {
        let has = |pid: u32| self.own.contains(&pid);
        self.own.into_iter().any(|pid| path(pid) == process) || parent(process).is_some_and(has)
    }

    /// The oldest process in the namespace other than our own, if one is certain to be in it.
    fn process(&self) -> Option<OwnedFd> {
        let is_here = |pid: u32| {
            let process = path(pid);
            self.of(&process) == Lives::Here && !self.is_own(&process)
        };
        others().into_iter().find_map(|pid| {
            if !is_here(pid) {
                return None;
            }
            let raw = Pid::from_raw(i32::try_from(pid).ok()?)?;
            let opened = pidfd_open(raw, PidfdFlags::empty()).ok()?;
            // The number may have passed to another process before it was opened.
            is_here(pid).then_some(opened)
        })
    }

    /// Whether no process other than our own is in the namespace or can enter it.
    fn is_deserted(&self) -> bool {
        let others: Vec<PathBuf> = others().into_iter().map(path).collect();
        let at_home = |process: &PathBuf| self.of(process) != Lives::Elsewhere;
        let deserted = !others
            .iter()
            .any(|process| at_home(process) && !self.is_own(process));
        // This process sees itself, if it sees any.
        let sees = path(std::process::id()).exists();
        let kept = |process: &PathBuf| {
            !self.own.into_iter().any(|pid| path(pid) == *process) && self.is_kept_by(process)
        };
        sees && deserted && !others.iter().any(kept)
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

/// The processes other than this one, in ascending order.
fn others() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut pids: Vec<u32> = entries.filter_map(number).collect();
    pids.retain(|pid| *pid != std::process::id());
    pids.sort_unstable();
    pids
}

/// The folder of a process.
fn path(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
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
