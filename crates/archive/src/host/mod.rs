//! A directory of this machine as a source. No root is needed: owners, modes and attributes are those that
//! `stat(2)` and `listxattr(2)` show. Others may change the directory meanwhile: nothing outside of it is
//! read ([`host_tree`](crate::host_tree)), and what was replaced after it was seen is refused.
//!
//! ```text
//! scan ─► ahead ─► look     names in order into the tree; threads that look at them; what there is to see
//! ```

mod ahead;
mod look;
mod scan;

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::OFlags;

pub(crate) use self::scan::scan;
use crate::error::{Error, Result};
use crate::host_tree::calls::fstat;
use crate::host_tree::{FolderId, Folders, Status, Unreached, open_file};
use crate::source::{Item, Source};

/// A number that changes when a file does: of its device, inode, size, and times of change.
pub(crate) fn fingerprint(status: &Status) -> u64 {
    foldhash::quality::FixedState::with_seed(0).hash_one((
        (status.identity, status.size),
        status.modified,
        status.changed,
    ))
}

/// That of an open file.
pub(crate) fn fingerprint_of(file: &File) -> io::Result<u64> {
    Ok(fingerprint(&fstat(file)?))
}

/// The files of a directory.
pub(crate) struct HostDirectory {
    root: PathBuf,
    folders: Folders,
    files: Files,
}

/// Files by number: 16 bytes for each, and its name.
#[derive(Default)]
struct Files {
    list: Vec<HostFile>,
    /// Names, each after its length in a byte.
    names: Vec<u8>,
}

struct HostFile {
    folder: FolderId,
    name: u32,
    fingerprint: u64,
}

impl Files {
    /// The number of a new file; `None`: there are too many.
    fn add(&mut self, folder: FolderId, name: &OsStr, fingerprint: u64) -> Option<u32> {
        let file = HostFile {
            folder,
            name: u32::try_from(self.names.len()).ok()?,
            fingerprint,
        };
        self.names.push(name.len() as u8);
        self.names.extend_from_slice(name.as_bytes());
        self.list.push(file);
        u32::try_from(self.list.len() - 1).ok()
    }

    fn name(&self, file: &HostFile) -> &OsStr {
        let at = file.name as usize;
        let length = usize::from(self.names[at]);
        OsStr::from_bytes(&self.names[at + 1..at + 1 + length])
    }
}

impl Source for HostDirectory {
    fn describe(&self) -> String {
        self.root.display().to_string()
    }

    fn open_item(&self, item: u32) -> Result<Box<dyn Item + '_>> {
        let known = &self.files.list[item as usize];
        let name = self.files.name(known);
        let is_known = |found: &Status| fingerprint(found) == known.fingerprint;
        let opened = self
            .folders
            .get(known.folder)
            .and_then(|dir| open_file(&*dir, name, OFlags::RDONLY, false, is_known));
        let (file, _) = opened.map_err(|error| unreached(self.path(known), error))?;
        Ok(Box::new(OpenFile {
            file,
            of: self,
            known,
        }))
    }
}

impl HostDirectory {
    /// The path of a file, for messages.
    fn path(&self, file: &HostFile) -> String {
        let inside = self.folders.path(file.folder).join(self.files.name(file));
        self.root.join(inside).display().to_string()
    }
}

/// The error of something that was seen before.
fn unreached(place: impl Display, error: Unreached) -> Error {
    match error {
        Unreached::Replaced => Error::Changed(place.to_string()),
        Unreached::Failed(error) => Error::io(place, error),
    }
}

struct OpenFile<'d> {
    file: File,
    of: &'d HostDirectory,
    known: &'d HostFile,
}

impl OpenFile<'_> {
    fn path(&self) -> String {
        self.of.path(self.known)
    }
}

impl Item for OpenFile<'_> {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buffer, at).map_err(|error| {
            // Another size by now, or another content.
            let is_short = error.kind() == io::ErrorKind::UnexpectedEof;
            match is_short || matches!(self.finish(), Err(Error::Changed(_))) {
                true => Error::Changed(self.path()),
                false => Error::io(self.path(), error),
            }
        })
    }

    fn finish(&self) -> Result<()> {
        let now = fingerprint_of(&self.file).map_err(|error| Error::io(self.path(), error))?;
        if now == self.known.fingerprint {
            Ok(())
        } else {
            Err(Error::Changed(self.path()))
        }
    }
}
