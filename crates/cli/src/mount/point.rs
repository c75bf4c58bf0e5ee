//! The mount point.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use throughline_fuse::{STATUS_ATTRIBUTE, mounts};

use crate::commands::status::is_ended;
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;

/// The next step for a directory that the caller may not mount at.
pub(super) const OWN_DIRECTORY: &str = "use a directory of your own: mkdir ~/mnt";

/// Directories that the server itself needs: with its mount over them, it would have to ask itself.
const OF_SERVER: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Checks that a directory can be mounted at, and returns its absolute path. The directory's own files are
/// hidden while it is mounted.
pub(super) fn check(dir: &Path) -> Result<PathBuf, Failure> {
    let cannot = || format!("cannot mount at {}", quote(dir));
    let place = mounts::resolve(dir).map_err(|error| unusable(dir, error).met(cannot()))?;
    if OF_SERVER.iter().any(|needed| Path::new(needed) == place) {
        let problem = Problem::new("the server of the mount needs what is there now");
        return Err(problem.with_next(OWN_DIRECTORY).met(cannot()));
    }
    let there = mounts::at(&place).doing(|| "cannot read the list of mounts")?;
    if let Some(mount) = there.filter(mounts::Mount::is_fuse) {
        let problem = if is_dead(&place) {
            Problem::new("there is a mount whose server has ended")
                .with_next(format!("remove it: throughline umount {}", quote(dir)))
        } else {
            Problem::new(format!("{} is mounted there", quote(&mount.source))).with_next(format!(
                "unmount it first: throughline umount {}",
                quote(dir)
            ))
        };
        return Err(problem.met(cannot()));
    }
    let found = std::fs::metadata(&place).map_err(|error| unusable(dir, error).met(cannot()))?;
    if !found.is_dir() {
        return Err(Problem::new("Not a directory")
            .with_next("make one: mkdir DIR")
            .met(cannot()));
    }
    Ok(place)
}

fn unusable(dir: &Path, error: io::Error) -> Problem {
    let next = match error.kind() {
        io::ErrorKind::NotFound => format!("make it: mkdir {}", quote(dir)),
        io::ErrorKind::PermissionDenied => OWN_DIRECTORY.to_owned(),
        _ => return error.into(),
    };
    Problem::from(error).with_next(next)
}

/// Whether the server of the mount at `place` has ended.
pub(crate) fn is_dead(place: &Path) -> bool {
    matches!(ask(place), Err(errno) if is_ended(errno))
}

/// Reads an attribute that the kernel never serves from its cache, so the request always reaches the server.
pub(super) fn ask(place: &Path) -> Result<usize, Errno> {
    rustix::fs::getxattr_query(place, STATUS_ATTRIBUTE)
}
