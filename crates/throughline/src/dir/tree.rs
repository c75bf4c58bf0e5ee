//! Directory trees, removed with all contents.

use std::path::Path;

use throughline_ext::{Last, Reason};

use super::Dir;
use super::walk::Trail;
use crate::error::{Error, Result};
use crate::node::{Listed, Node};

impl Dir {
    /// Removes a directory and everything below it. Symbolic links are removed, not followed. If it fails, a
    /// part may already be removed.
    ///
    /// **Until a sync or the next commit, a crash undoes it, as a whole or in part** ([what is
    /// durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::NotEmpty`] if names are created in it at the same time; [`Reason::NotDir`] for anything but
    /// a directory; [`Reason::NameTooLong`] for more than 2048 nested directories; [`Error::Corrupt`] for a
    /// directory that is found twice; as [`Dir::remove_dir`] and [`Dir::remove_file`].
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let found = self.find(path, Last::Name)?.removable()?;
        let parent = found.parent()?;
        let mut removal = Removal::default();
        removal.enter(parent.lookup(&found.place.name)?, found.place.name)?;
        removal.run()?;
        parent.rmdir(&removal.name)
    }
}

/// A tree being removed.
#[derive(Default)]
struct Removal {
    open: Vec<Level>,
    trail: Trail,
    /// The outermost directory's name, once that directory is empty.
    name: Vec<u8>,
}

/// A directory being emptied.
struct Level {
    dir: Node,
    name: Vec<u8>,
    listed: std::vec::IntoIter<Listed>,
    next: u64,
}

impl Level {
    fn next(&mut self) -> Result<Option<Listed>> {
        loop {
            if let Some(found) = self.listed.next() {
                self.next = found.next;
                if !matches!(found.name.as_slice(), b"." | b"..") {
                    return Ok(Some(found));
                }
                continue;
            }
            let listed = self.dir.list(self.next)?;
            if listed.is_empty() {
                return Ok(None);
            }
            self.listed = listed.into_iter();
        }
    }
}

impl Removal {
    fn enter(&mut self, dir: Node, name: Vec<u8>) -> Result<()> {
        if !dir.is_dir() {
            return Err(Reason::NotDir.into());
        }
        self.trail.enter(dir.inode())?;
        self.open.push(Level {
            dir,
            name,
            listed: Vec::new().into_iter(),
            next: 0,
        });
        Ok(())
    }

    /// Empties the outermost directory.
    fn run(&mut self) -> Result<()> {
        while let Some(level) = self.open.last_mut() {
            let Some(found) = level.next()? else {
                let name = std::mem::take(&mut level.name);
                self.open.pop();
                self.trail.leave();
                match self.open.last() {
                    Some(above) => gone(above.dir.rmdir(&name))?,
                    None => self.name = name,
                }
                continue;
            };
            match level.dir.lookup(&found.name) {
                Ok(child) if child.is_dir() => self.enter(child, found.name)?,
                Ok(_) => gone(level.dir.unlink(&found.name))?,
                Err(Error::Caller(Reason::NotFound)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Ignores that another thread has already removed it.
fn gone(removed: Result<()>) -> Result<()> {
    match removed {
        Err(Error::Caller(Reason::NotFound)) => Ok(()),
        removed => removed,
    }
}
