//! The names of a directory as an iterator: [`ReadDir`], [`DirEntry`].

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline_ext::{Corrupt, FsBlock, Inode, InodeNumber, Last, Reason};

use crate::error::{Error, Result};
use crate::metadata::{FileType, Metadata};
use crate::volume::Held;

/// An entry of a directory. It keeps the directory open, as a [`Dir`](crate::Dir) does.
#[derive(Clone)]
pub struct DirEntry {
    dir: Arc<Held>,
    /// The path of the directory, as it was given.
    path: Arc<Path>,
    name: OsString,
    ino: u64,
    file_type: Option<FileType>,
}

impl DirEntry {
    /// The path: that of the directory as it was given to `read_dir`, and the name.
    pub fn path(&self) -> PathBuf {
        self.path.join(&self.name)
    }

    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }

    /// The name.
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// The number of its inode.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// The type; a symbolic link is not followed. Most volumes store it in the directory; if not, it is read
    /// from the inode.
    ///
    /// # Errors
    /// As [`DirEntry::metadata`].
    pub fn file_type(&self) -> Result<FileType> {
        match self.file_type {
            Some(stored) => Ok(stored),
            None => Ok(self.metadata()?.file_type()),
        }
    }

    /// The current metadata of the named inode; a symbolic link is not followed.
    ///
    /// # Errors
    /// [`Reason::NotFound`] if the name was removed meanwhile; damage; device errors.
    pub fn metadata(&self) -> Result<Metadata> {
        let place =
            self.dir
                .fs()
                .place_from(&self.dir.inode, self.name.as_bytes(), Last::NoFollow)?;
        let inode = place.inode.ok_or(Reason::NotFound)?;
        Metadata::of(self.dir.fs(), &inode)
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirEntry")
            .field("name", &self.name)
            .field("ino", &self.ino)
            .field("file_type", &self.file_type)
            .finish_non_exhaustive()
    }
}

/// An iterator over the names in a directory; see [`Dir::entries`](crate::Dir::entries). Names created or
/// removed while it is read may or may not be returned. Damage that is skipped is returned as an item
/// ([`Error::Corrupt`]), and the remaining names follow. Any other error ends the iteration.
pub struct ReadDir {
    held: Arc<Held>,
    path: Arc<Path>,
    batch: std::vec::IntoIter<throughline_ext::DirEntry>,
    skipped: std::vec::IntoIter<Corrupt>,
    /// Damaged places already reported.
    reported: HashSet<(Option<InodeNumber>, Option<FsBlock>)>,
    next: Option<u64>,
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            if let Some(entry) = self
                .batch
                .find(|entry| !matches!(entry.name.as_slice(), b"." | b".."))
            {
                return Some(self.checked(entry));
            }
            // A listing that resumes in the middle of a block finds its damage again.
            let reported = &mut self.reported;
            if let Some(damage) = self.skipped.find(|damage| reported.insert(damage.place())) {
                return Some(Err(Error::Corrupt(damage)));
            }
            let fs = self.held.fs();
            match fs.list_dir_around_damage(&self.held.inode, self.next?) {
                Ok(listing) => {
                    self.next = listing.names.last().map(|entry| entry.next);
                    self.batch = listing.names.into_iter();
                    self.skipped = listing.skipped.into_iter();
                }
                Err(error) => {
                    self.next = None;
                    return Some(Err(error.into()));
                }
            }
        }
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir")
            .field("dir", &self.held.inode.ino.0)
            .finish_non_exhaustive()
    }
}

impl ReadDir {
    pub(super) fn new(held: Arc<Held>, path: &Path) -> ReadDir {
        ReadDir {
            held,
            path: path.into(),
            batch: Vec::new().into_iter(),
            skipped: Vec::new().into_iter(),
            reported: HashSet::new(),
            next: Some(0),
        }
    }

    /// Refuses a name that could act as a path: a caller that joins it to one would leave the directory.
    fn checked(&self, entry: throughline_ext::DirEntry) -> Result<DirEntry> {
        if !is_name(&entry.name) {
            let damage = impossible_name(&self.held.inode, &entry.name);
            self.held.fs().count_damage(&damage);
            return Err(Error::Corrupt(damage));
        }
        Ok(DirEntry {
            dir: Arc::clone(&self.held),
            path: Arc::clone(&self.path),
            name: OsString::from_vec(entry.name),
            ino: entry.ino.0.into(),
            file_type: entry.file_type.map(FileType::from),
        })
    }
}

/// The damage that reports an invalid name.
pub(crate) fn impossible_name(dir: &Inode, name: &[u8]) -> Corrupt {
    Corrupt {
        inode: Some(dir.ino),
        block: None,
        what: format!(
            "the directory holds the impossible name \"{}\"",
            name.escape_ascii()
        ),
    }
}

pub(crate) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn impossible_names_are_refused() {
        for bad in ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b"] {
            assert!(!is_name(bad.as_bytes()), "{bad:?}");
        }
        for good in ["a", "...", " ", "-rf", "a\\b"] {
            assert!(is_name(good.as_bytes()), "{good:?}");
        }
    }
}
