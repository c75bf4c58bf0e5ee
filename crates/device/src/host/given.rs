//! Descriptors that were handed to this process, by the names that the system has for them: `/proc/self/fd/3`, `/dev/fd/3`,
//! `/dev/stdin`, or a symbolic link to one of these.
//!
//! To open such a name is to open the file anew. A lock that came with the descriptor stands in the way of what is opened so,
//! and the system may refuse to open at all what the descriptor was allowed (in a user namespace that does not know the file's
//! owner). So whoever opens a path asks here for the descriptor too.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::path::Path;

use rustix::fs::OFlags;

use super::LockMode;

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

/// The open file that one of our descriptors is, if `path` is a name of one. It shares offset, flags and locks with it.
pub fn given_file(path: &Path) -> Option<File> {
    let number = given_descriptor(path)?;
    // SAFETY: any number may be asked for; the call makes a new descriptor or fails.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    // SAFETY: it was made just now, and nobody else knows of it.
    (copy >= 0).then(|| unsafe { File::from_raw_fd(copy) })
}

/// The number of the descriptor that `path` is a name of.
pub fn given_descriptor(path: &Path) -> Option<RawFd> {
    let own = Path::new("/proc/self").canonicalize().ok()?;
    let mut path = std::path::absolute(path).ok()?;
    for _ in 0..MAX_LINKS {
        let folder = path.parent()?.canonicalize().ok()?;
        let name = path.file_name()?.to_owned();
        if folder.strip_prefix(&own).is_ok_and(lists_descriptors) {
            return name.to_str()?.parse().ok();
        }
        // What is no link is a file of its own.
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

/// Whether what the descriptor may do is enough for I/O at offsets of our choice.
pub(crate) fn is_usable(given: &File, write: bool) -> bool {
    let Ok(flags) = rustix::fs::fcntl_getfl(given) else {
        return false;
    };
    // Writing ignores offsets on a descriptor that appends.
    let barred = OFlags::PATH
        | if write {
            OFlags::APPEND
        } else {
            OFlags::empty()
        };
    let access = flags & OFlags::RWMODE;
    !flags.intersects(barred) && (access == OFlags::RDWR || (!write && access == OFlags::RDONLY))
}

/// The locks that are on an open file itself, and on no other open file of the same file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Locks {
    /// First and last byte, and whether nobody else may read either.
    ranges: Vec<(u64, u64, bool)>,
    /// One over the file as `flock` makes it.
    pub(super) flock: bool,
}

impl Locks {
    /// As `/proc` tells; none where it is not there.
    pub(super) fn of(file: &File) -> Locks {
        let info = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
        Locks::read(&fs::read_to_string(info).unwrap_or_default())
    }

    /// `lock: 1: OFDLCK ADVISORY WRITE -1 fe:00:1234 0 EOF`: number, kind, enforcement, mode, process, file, first and last byte.
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

    /// There is a lock on bytes of the file.
    pub(super) fn any(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// One of them is as good as `mode` for what begins at byte `at`.
    pub(super) fn serve(&self, mode: LockMode, at: u64) -> bool {
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
             lock:\t2: OFDLCK ADVISORY  READ -1 fe:00:10003402 9000 EOF\nlock:\t3: POSIX  ADVISORY  WRITE 12 fe:00:1 0 EOF\n",
        );
        assert!(locks.any() && !locks.flock);
        let serve = |mode, at| locks.serve(mode, at);
        assert!(serve(LockMode::Exclusive, 4096) && serve(LockMode::Shared, 8191));
        assert!(!serve(LockMode::Exclusive, 4095) && !serve(LockMode::Shared, 8192));
        assert!(!serve(LockMode::Exclusive, 9000) && serve(LockMode::Shared, 1 << 40));
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
