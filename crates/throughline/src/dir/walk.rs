//! A directory with all that is below it: [`Walk`].
//!
//! Invariants, for damaged and hostile volumes too:
//! - No directory is entered twice, so a walk ends, whatever the directories name.
//! - At most [`MOST_DEEP`] directories are open at once; there is no recursion.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use throughline_ext::{Corrupt, Inode, InodeNumber, Reason};

use super::{Dir, DirEntry, ReadDir};
use crate::error::{Error, Result};
use crate::metadata::{FileType, Metadata};
use crate::volume::Volume;

/// How deep directories are followed: as deep as the longest path of the kernel can name.
pub(super) const MOST_DEEP: usize = 2048;

/// The directories that were entered, and how deep it is now.
#[derive(Debug, Default)]
pub(super) struct Trail {
    seen: HashSet<InodeNumber>,
    depth: usize,
}

impl Trail {
    /// Before a directory is listed; after each `Ok`, `leave` follows.
    pub(super) fn enter(&mut self, dir: &Inode) -> Result<()> {
        if self.depth >= MOST_DEEP {
            return Err(Reason::NameTooLong.into());
        }
        if !self.seen.insert(dir.ino) {
            return Err(Error::Corrupt(Corrupt {
                inode: Some(dir.ino),
                block: None,
                what: "the directory is found a second time below its own tree".into(),
            }));
        }
        self.depth += 1;
        Ok(())
    }

    /// Behind the directory's last entry.
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }
}

/// All that is below a directory, directories before what they hold; see [`Dir::walk`].
#[derive(Debug)]
pub struct Walk {
    open: Vec<Level>,
    trail: Trail,
    /// The directory that was returned last, not entered yet.
    below: Option<WalkEntry>,
    /// An error of entering the first one.
    failed: Option<Error>,
}

/// A directory that is being listed.
#[derive(Debug)]
struct Level {
    dir: Dir,
    path: PathBuf,
    entries: ReadDir,
}

/// Something below a directory; see [`Dir::walk`].
#[derive(Clone, Debug)]
pub struct WalkEntry {
    path: PathBuf,
    entry: DirEntry,
    file_type: FileType,
    depth: usize,
}

impl WalkEntry {
    /// Its path from the directory where the walk began.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last name of the path.
    pub fn file_name(&self) -> &OsStr {
        self.entry.file_name()
    }

    /// The inode's number.
    pub fn ino(&self) -> u64 {
        self.entry.ino()
    }

    /// What kind of thing it is; of a symbolic link, the link.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// How many directories are between it and the directory where the walk began: 0 for what that one holds itself.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// As [`DirEntry::metadata`].
    ///
    /// # Errors
    /// As there.
    pub fn metadata(&self) -> Result<Metadata> {
        self.entry.metadata()
    }
}

impl Dir {
    /// Everything below this directory, in the order of the directories: each directory, then what it holds. Symbolic links are
    /// not followed. What comes or goes meanwhile may or may not be met. Needs memory for each directory on the way down and 16
    /// bytes for each that was met.
    ///
    /// Errors are items, and the walk goes on behind them: those of [`ReadDir`]; [`Error::Corrupt`] for a directory that is
    /// found in two places, and [`Reason::NameTooLong`] for one that more than 2048 others are around; neither is entered.
    ///
    /// ```no_run
    /// # fn main() -> throughline::Result<()> {
    /// let volume = throughline::Volume::open("disk.img")?;
    /// for entry in volume.walk("/etc")? {
    ///     let entry = entry?;
    ///     println!("{} {}", entry.path().display(), entry.metadata()?.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn walk(&self) -> Walk {
        let mut walk = Walk {
            open: Vec::new(),
            trail: Trail::default(),
            below: None,
            failed: None,
        };
        walk.failed = walk.enter(self.clone(), PathBuf::new()).err();
        walk
    }
}

impl Volume {
    /// [`Dir::walk`] of the directory that a path stands for.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        Ok(self.open_dir(path)?.walk())
    }
}

impl Walk {
    /// Leaves out what is below the directory that came last; after anything else this does nothing.
    pub fn skip_dir(&mut self) {
        self.below = None;
    }

    fn enter(&mut self, dir: Dir, path: PathBuf) -> Result<()> {
        self.trail.enter(&dir.held.inode)?;
        let entries = dir.entries().inspect_err(|_| self.trail.leave())?;
        self.open.push(Level { dir, path, entries });
        Ok(())
    }

    fn enter_below(&mut self, entry: WalkEntry) -> Result<()> {
        let Some(level) = self.open.last() else {
            return Ok(());
        };
        match level.dir.open_dir_itself(entry.file_name()) {
            Ok(dir) => self.enter(dir, entry.path),
            // It went meanwhile.
            Err(Error::Caller(Reason::NotFound)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn found(level: &Level, entry: DirEntry, depth: usize) -> Result<WalkEntry> {
        let file_type = match entry.file_type() {
            Some(kind) => kind,
            None => entry.metadata()?.file_type(),
        };
        Ok(WalkEntry {
            path: level.path.join(entry.file_name()),
            entry,
            file_type,
            depth,
        })
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Result<WalkEntry>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        if let Some(entry) = self.below.take()
            && let Err(error) = self.enter_below(entry)
        {
            return Some(Err(error));
        }
        loop {
            let depth = self.open.len().checked_sub(1)?;
            let level = self.open.last_mut()?;
            let found = match level.entries.next() {
                Some(Ok(entry)) => Walk::found(level, entry, depth),
                Some(Err(error)) => Err(error),
                None => {
                    self.open.pop();
                    self.trail.leave();
                    continue;
                }
            };
            if let Ok(entry) = &found
                && entry.file_type.is_dir()
            {
                self.below = Some(entry.clone());
            }
            return Some(found);
        }
    }
}
