//! Walking a directory tree of an image that may be hostile: no loops, no endless depth.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use throughline::{Dir, Metadata, Volume};

use crate::context::Context;
use crate::problem::{Doing, Failure, Problem, Result};

/// How deep directories may nest: a path of the longest length that the kernel takes has no more.
pub(crate) const MAX_DEPTH: usize = 2048;

/// Watches one walk: each directory of a sound file system is met once.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    seen: HashSet<u64>,
    depth: usize,
}

impl Guard {
    /// Call before a directory's entries are read; `ino` is its inode. Every `Ok` is followed by [`Guard::leave`].
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

    /// Call behind a directory's last entry.
    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }
}

/// A name in a directory and what it stands for.
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

/// The entries of a directory as it has them. Damage is complained about as met by what `reading` says; the names that are left
/// are there.
pub(crate) fn unsorted(
    dir: &Dir,
    context: &Context,
    reading: impl Fn() -> String,
) -> std::result::Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    for entry in dir.entries().doing(&reading)? {
        match entry {
            Ok(entry) => {
                let name = entry.file_name().to_owned();
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

/// Opens the directory that holds the last name of a path.
pub(crate) fn open_parent<'a>(volume: &Volume, path: &'a Path) -> Result<(Dir, &'a OsStr)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Problem::new("it has no name that could be changed"));
    };
    Ok((volume.open_dir(parent)?, name))
}
