//! Descriptors passed to this process, named by path: `/proc/self/fd/3`, `/dev/fd/3`, `/dev/stdin`, or a
//! symbolic link to one of these.
//!
//! Opening such a path opens the file again. A lock held by the descriptor then conflicts with one on the new
//! open file, and the system may refuse to open the file at all (for example in a user namespace without a
//! mapping for its owner). So code that opens a path also looks up the descriptor here.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::path::Path;

use rustix::fs::OFlags;

use super::LockMode;

/// The most symbolic links that the kernel follows.
const MAX_LINKS: usize = 40;

/// A duplicate of the descriptor that `path` names, if it names one of this process. It shares offset, flags
/// and locks with the original.
pub fn given_file(path: &Path) -> Option<File> {
    let number = given_descriptor(path)?;
    // SAFETY: any number may be passed; the call makes a new descriptor or fails.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    // SAFETY: the descriptor was just made and has no other owner.
    (copy >= 0).then(|| unsafe { File::from_raw_fd(copy) })
}

/// The number of the descriptor that `path` names.
pub fn given_descriptor(path: &Path) -> Option<RawFd> {
    let own = Path::new("/proc/self").canonicalize().ok()?;
    let mut path = std::path::absolute(path).ok()?;
    for _ in 0..MAX_LINKS {
        let folder = path.parent()?.canonicalize().ok()?;
        let name = path.file_name()?.to_owned();
        if folder.strip_prefix(&own).is_ok_and(lists_descriptors) {
            return name.to_str()?.parse().ok();
        }
        // Anything but a link is not the name of a descriptor.
        path = folder.join(fs::read_link(folder.join(name)).ok()?);
    }
    None
}

/// `fd`, or `task/12/fd`: threads share their descriptors.
fn lists_descriptors(below_process: &Path) -> bool {
    let parts: Vec<_> = below_process.iter().collect();
    match parts.as_slice() {
        [list] => *list == "fd",
        [task, _, list] => *task == "task" && *list == "fd",
        _ => false,
    }
}

/// Whether the descriptor's access mode and flags allow I/O at any offset.
pub(crate) fn is_usable(given: &File, write: bool) -> bool {
    let Ok(flags) = rustix::fs::fcntl_getfl(given) else {
        return false;
    };
    // Writes to a descriptor in append mode ignore the offset.
    let barred = OFlags::PATH
        | if write {
            OFlags::APPEND
        } else {
            OFlags::empty()
        };
    let access = flags & OFlags::RWMODE;
    !flags.intersects(barred) && (access == OFlags::RDWR || (!write && access == OFlags::RDONLY))
}

/// The locks held by one open file description, not by others of the same file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Locks {
    /// First and last byte, and whether the lock is exclusive.
    ranges: Vec<(u64, u64, bool)>,
    /// Whether there is a lock made by `flock`.
    pub(super) flock: bool,
}

impl Locks {
    /// Reads the locks from `/proc`; none if that is not available.
    pub(super) fn of(file: &File) -> Locks {
        let info = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
        Locks::read(&fs::read_to_string(info).unwrap_or_default())
    }

    /// Parses lines like `lock: 1: OFDLCK ADVISORY WRITE -1 fe:00:1234 0 EOF`: number, kind, enforcement,
    /// mode, process, file, first and last byte.
    fn read(info: &str) -> Locks {
        let mut found = Locks::default();
        for line in info.lines() {
            let Some(line) = line.strip_prefix("lock:") else {
                continue;
            };
            let fields: Vec<_> = line.split_ascii_whitespace().collect();
            let [_, kind, _, mode, _, _, first, last] = fields[..] else {
                continue;
            };
            found.flock |= kind == "FLOCK";
            let last = if last == "EOF" {
                Ok(u64::MAX)
            } else {
                last.parse()
            };
            if let ("OFDLCK", Ok(first), Ok(last)) = (kind, first.parse(), last) {
                found.ranges.push((first, last, mode == "WRITE"));
            }
        }
        found
    }

    /// Whether there is an open-file-description lock.
    pub(super) fn any(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Whether one of the locks covers byte `at` and is at least as strong as `mode`.
    pub(super) fn cover(&self, mode: LockMode, at: u64) -> bool {
        self.ranges.iter().any(|(first, last, exclusive)| {
            (*first..=*last).contains(&at) && (*exclusive || mode == LockMode::Shared)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_descriptors_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("file")).unwrap();
        let number = file.as_raw_fd();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(format!("/dev/fd/{number}"), &link).unwrap();
        let process = std::process::id();
        for name in [
            format!("/proc/self/fd/{number}"),
            format!("/dev/fd/{number}"),
            format!("/proc/{process}/fd/{number}"),
            format!("/proc/thread-self/fd/{number}"),
            format!("/dev/../dev/fd/./{number}"),
            link.to_str().unwrap().to_owned(),
        ] {
            assert_eq!(given_descriptor(Path::new(&name)), Some(number), "{name}");
        }
        assert_eq!(given_descriptor(Path::new("/dev/stdin")), Some(0));
        let looped = folder.path().join("loop");
        std::os::unix::fs::symlink("loop", &looped).unwrap();
        for other in [
            folder.path().join("file"),
            looped,
            "/proc/1/fd/0".into(),
            "/proc/self/fd".into(),
            "/proc/self/fdinfo/0".into(),
            "/".into(),
            "".into(),
        ] {
            assert_eq!(given_descriptor(&other), None, "{}", other.display());
        }
        assert!(given_file(Path::new("/proc/self/fd/1000000")).is_none());
    }

    #[test]
    fn locks_are_read() {
        let locks = Locks::read(
            "pos:\t2048\nflags:\t0100002\nlock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:10003402 4096 8191\n\
             lock:\t2: OFDLCK ADVISORY  READ -1 fe:00:10003402 9000 EOF\n\
             lock:\t3: POSIX  ADVISORY  WRITE 12 fe:00:1 0 EOF\n",
        );
        assert!(locks.any() && !locks.flock);
        let covers = |mode, at| locks.cover(mode, at);
        assert!(covers(LockMode::Exclusive, 4096) && covers(LockMode::Shared, 8191));
        assert!(!covers(LockMode::Exclusive, 4095) && !covers(LockMode::Shared, 8192));
        assert!(!covers(LockMode::Exclusive, 9000) && covers(LockMode::Shared, 1 << 40));
        assert!(Locks::read("lock:\t1: FLOCK  ADVISORY  WRITE 12 fe:00:1 0 EOF\n").flock);
        for odd in [
            "",
            "lock:",
            "lock: x",
            "lock: 1: OFDLCK ADVISORY WRITE -1 f x y",
        ] {
            assert_eq!(Locks::read(odd), Locks::default());
        }
    }
}
