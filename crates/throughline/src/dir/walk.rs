//! [`Walk`]: an iterator over a directory tree.
//!
//! Invariants, also on damaged and hostile volumes:
//! - No directory is entered twice, so every walk ends.
//! - At most [`MAX_DEPTH`] directories are open at once; there is no recursion.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use throughline_ext::{Corrupt, Inode, InodeNumber, Last, Reason};

use super::{Dir, DirEntry, ReadDir};
use crate::error::{Error, Result};
use crate::metadata::{FileType, Metadata};

/// The deepest nesting that is followed: as deep as the kernel's longest path can name.
pub(super) const MAX_DEPTH: usize = 2048;

/// The directories entered so far, and the current depth.
#[derive(Debug, Default)]
pub(super) struct Trail {
    seen: HashSet<InodeNumber>,
    depth: usize,
}

impl Trail {
    /// Call before a directory is listed; each `Ok` needs a matching `leave`.
    pub(super) fn enter(&mut self, dir: &Inode) -> Result<()> {
        if self.depth >= MAX_DEPTH {
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

    /// Call after the directory's last entry.
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }
}

/// An iterator over everything below a directory, parents before their contents; see [`Dir::walk`].
#[derive(Debug)]
pub struct Walk {
    open: Vec<Level>,
    trail: Trail,
    /// The directory returned last; not entered yet.
    below: Option<WalkEntry>,
    /// An error from entering the first directory.
    failed: Option<Error>,
}

/// A directory that is being listed.
#[derive(Debug)]
struct Level {
    dir: Dir,
    path: PathBuf,
    entries: ReadDir,
}

/// An entry of a walk; see [`Dir::walk`].
#[derive(Clone, Debug)]
pub struct WalkEntry {
    path: PathBuf,
    entry: DirEntry,
    file_type: FileType,
    depth: usize,
}

impl WalkEntry {
    /// The path: that given to [`Dir::walk`], and the names below it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last name of the path.
    pub fn file_name(&self) -> &OsStr {
        self.entry.name()
    }

    /// The inode's number.
    pub fn ino(&self) -> u64 {
        self.entry.ino()
    }

    /// The type; a symbolic link is not followed.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// The number of directories between it and the one where the walk began: 0 for direct entries.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// As [`DirEntry::metadata`].
    ///
    /// # Errors
    /// The same.
    pub fn metadata(&self) -> Result<Metadata> {
        self.entry.metadata()
    }
}

impl Dir {
    /// Everything below the directory at `path`, in directory order: each directory is followed by its
    /// contents. Symbolic links below it are not followed. Names created or removed during the walk may or
    /// may not be returned. Memory use: each directory on the current path, plus 16 bytes for each directory
    /// entered.
    ///
    /// Errors are items, and the walk continues after them: those of [`ReadDir`]; [`Error::Corrupt`] for a
    /// directory found in two places, and [`Reason::NameTooLong`] for one nested more than 2048 deep. Neither
    /// of these directories is entered.
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
    ///
    /// # Errors
    /// As [`Dir::open_dir`].
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let dir = self.open_dir(&path)?;
        let mut walk = Walk {
            open: Vec::new(),
            trail: Trail::default(),
            below: None,
            failed: None,
        };
        walk.failed = walk.enter(dir, path.as_ref().to_owned()).err();
        Ok(walk)
    }
}

impl Walk {
    /// Skips the contents of the directory returned last. After any other entry it does nothing.
    pub fn skip_dir(&mut self) {
        self.below = None;
    }

    fn enter(&mut self, dir: Dir, path: PathBuf) -> Result<()> {
        self.trail.enter(dir.own()?.inode())?;
        let entries = dir.entries().inspect_err(|_| self.trail.leave())?;
        self.open.push(Level { dir, path, entries });
        Ok(())
    }

    fn enter_below(&mut self, entry: WalkEntry) -> Result<()> {
        let Some(level) = self.open.last() else {
            return Ok(());
        };
        match level.dir.dir_at(entry.file_name(), Last::NoFollow) {
            Ok(dir) => self.enter(dir, entry.path),
            // Removed in the meantime.
            Err(Error::Caller(Reason::NotFound)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn found(level: &Level, entry: DirEntry, depth: usize) -> Result<WalkEntry> {
        Ok(WalkEntry {
            path: level.path.join(entry.name()),
            file_type: entry.file_type()?,
            entry,
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
