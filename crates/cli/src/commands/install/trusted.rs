//! Programs that only root can change: what root runs under a fixed name is one of them, or becomes one by a
//! copy.
//!
//! Invariants:
//! - The file and each directory on its real path are root's, and neither the group nor others may write to
//!   them. That a group is root's does not suffice: with an ACL, the group's bits are those of other users
//!   as well. Directories in which only owners may remove (sticky) may be written to by all.
//! - The way is walked by descriptors from `/`, and no link is followed. As nobody but root can change what
//!   was found sound, it stays so.
//! - A copy gets its name only when it is complete, and has its owner and its mode.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, fchmod, fchown, fstat, openat, renameat,
    unlinkat,
};
use rustix::io::Errno;

use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;

/// Where copies go.
pub(super) const USUAL_DIR: &str = "/usr/local/bin";
const NAME: &str = "throughline";
const MODE: u32 = 0o755;

/// Why others than root can change what is at a path.
#[derive(Debug)]
pub(super) struct Why {
    path: PathBuf,
    what: String,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", quote(&self.path), self.what)
    }
}

/// Whether this is root, whom others may make run a program.
pub(super) fn is_needed() -> bool {
    rustix::process::geteuid().is_root()
}

/// Opens what is at a real path (absolute, without links), if only root can change it.
pub(super) fn check(real: &Path) -> Result<OwnedFd, Why> {
    let mut path = PathBuf::from("/");
    let mut at = open(CWD, Path::new("/"), &path)?;
    check_one(&at, &path)?;
    for component in real.components() {
        let Component::Normal(name) = component else {
            continue;
        };
        path.push(name);
        at = open(at.as_fd(), name.as_ref(), &path)?;
        check_one(&at, &path)?;
    }
    Ok(at)
}

fn open(at: impl AsFd, name: &Path, path: &Path) -> Result<OwnedFd, Why> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty()).map_err(|errno| Why {
        path: path.to_owned(),
        what: format!("cannot be looked at: {}", Problem::from(errno).reason),
    })
}

fn check_one(at: &OwnedFd, path: &Path) -> Result<(), Why> {
    let why = |what: String| Why {
        path: path.to_owned(),
        what,
    };
    let stat = fstat(at).map_err(|errno| why(Problem::from(errno).reason))?;
    if stat.st_uid != 0 {
        return Err(why(format!("belongs to user {}", stat.st_uid)));
    }
    let kind = FileType::from_raw_mode(stat.st_mode);
    let mode = Mode::from_raw_mode(stat.st_mode);
    if kind == FileType::Symlink {
        return Err(why("has become a link".to_owned()));
    }
    if kind == FileType::Directory && mode.contains(Mode::SVTX) {
        return Ok(());
    }
    if mode.contains(Mode::WOTH) {
        return Err(why("can be written to by all users".to_owned()));
    }
    if mode.contains(Mode::WGRP) {
        let group = stat.st_gid;
        return Err(why(format!("can be written to by group {group}")));
    }
    Ok(())
}

/// The path of the copy in a directory.
pub(super) fn copy_in(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Copies this program to a directory that only root can change. Returns the copy's path.
pub(super) fn copy(dir: &Path) -> Result<PathBuf, Failure> {
    let cannot = || format!("cannot copy this program to {}", quote(dir));
    let real = dir.canonicalize().doing(cannot)?;
    let at = check(&real).map_err(|why| {
        Problem::new(format!("others can change what is there: {why}"))
            .with_next("--copy=DIR copies it to another directory")
            .met(cannot())
    })?;
    let temporary = format!(".{NAME}.{}", std::process::id());
    // Left by a program that had this number.
    let _ = unlinkat(&at, &temporary, AtFlags::empty());
    let copied = fill(&at, &temporary).and_then(|()| Ok(renameat(&at, &temporary, &at, NAME)?));
    if copied.is_err() {
        let _ = unlinkat(&at, &temporary, AtFlags::empty());
    }
    copied.doing(cannot)?;
    Ok(copy_in(&real))
}

/// Writes this program, as it runs, to a new file.
fn fill(at: &OwnedFd, name: &str) -> io::Result<()> {
    let mut this = File::open("/proc/self/exe")?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(at, name, flags, Mode::RUSR | Mode::WUSR)?);
    io::copy(&mut this, &mut file)?;
    fchown(&file, Some(Uid::ROOT), Some(Gid::ROOT))?;
    fchmod(&file, Mode::from_raw_mode(MODE))?;
    file.sync_all()
}

/// Removes the copy in a directory, if there is one.
pub(super) fn remove_copy(dir: &Path) -> Result<(), Failure> {
    let copy = copy_in(dir);
    match rustix::fs::unlink(&copy) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Problem::from(errno).met(format!("cannot remove {}", quote(&copy)))),
    }
}
