//! Walks a directory tree of a possibly hostile image: without loops and with bounded depth.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use throughline::{Dir, Metadata, Volume};

use crate::context::Context;
use crate::problem::{Doing, Failure, Problem, Result};

/// Maximum nesting of directories: the longest path that the kernel accepts has no more.
pub(crate) const MAX_DEPTH: usize = 2048;

/// Guards one walk: in a sound file system, each directory is reached once.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    seen: HashSet<u64>,
    depth: usize,
}

impl Guard {
    /// Must be called before the entries of a directory are read; `ino` is its inode. Every `Ok` must be
    /// followed by [`Guard::leave`].
    pub(crate) fn enter(&mut self, ino: u64) -> Result<()> {
        if self.depth >= MAX_DEPTH {
            return Err(Problem::new(format!(
                "more than {MAX_DEPTH} directories inside each other"
            ))
            .with_next("give a directory further down as the start"));
        }
        if !self.seen.insert(ino) {
            return Err(Problem::new(format!(
                "corrupt: directory inode {ino} is met a second time"
            ))
            .with_next("look closer with 'e2fsck -fn IMAGE', repair with 'e2fsck -f IMAGE'"));
        }
        self.depth += 1;
        Ok(())
    }

    /// Must be called after the last entry of a directory.
    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }
}

/// A directory entry and its inode's metadata.
pub(crate) struct Entry {
    /// The name.
    pub(crate) name: OsString,
    /// Of the inode itself: a symbolic link is not followed.
    pub(crate) meta: Result<Metadata>,
}

/// The entries of a directory, sorted by name; see [`unsorted`].
pub(crate) fn sorted(
    dir: &Dir,
    context: &Context,
    reading: impl Fn() -> String,
) -> std::result::Result<Vec<Entry>, Failure> {
    let mut entries = unsorted(dir, context, reading)?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// The entries of a directory in stored order. Damage is reported with the operation from `reading`; the
/// readable names are returned.
pub(crate) fn unsorted(
    dir: &Dir,
    context: &Context,
    reading: impl Fn() -> String,
) -> std::result::Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    for entry in dir.entries().doing(&reading)? {
        match entry {
            Ok(entry) => {
                let name = entry.file_name();
                let meta = dir.symlink_metadata(&name).map_err(Problem::from);
                entries.push(Entry { name, meta });
            }
            Err(damage @ throughline::Error::Corrupt(_)) => {
                context.complain(Problem::from(damage).met(reading()))?;
            }
            Err(error) => return Err(Problem::from(error).met(reading())),
        }
    }
    Ok(entries)
}

/// Opens the directory that holds the last component of a path.
pub(crate) fn open_parent<'a>(volume: &Volume, path: &'a Path) -> Result<(Dir, &'a OsStr)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Problem::new("it has no name that could be changed"));
    };
    Ok((volume.open_dir(parent)?, name))
}
