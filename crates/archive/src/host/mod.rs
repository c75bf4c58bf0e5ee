//! A directory of this machine as a source. No root is needed: owners, modes and attributes are those that
//! `lstat(2)` and `listxattr(2)` show.
//!
//! ```text
//! scan ─► ahead ─► look     names in order into the tree; threads that look at them; what there is to see
//! ```

mod ahead;
mod look;
mod scan;

use std::ffi::OsString;
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

pub(crate) use self::scan::scan;
use crate::error::{Error, Result};
use crate::source::{Item, Source};

/// A number that changes when a file does: of its device, inode, size, and times of change.
pub(crate) fn fingerprint(metadata: &std::fs::Metadata) -> u64 {
    foldhash::quality::FixedState::with_seed(0).hash_one((
        (metadata.dev(), metadata.ino(), metadata.size()),
        (metadata.mtime(), metadata.mtime_nsec()),
        (metadata.ctime(), metadata.ctime_nsec()),
    ))
}

/// The files of a directory: 16 bytes for each, and its name.
pub(crate) struct HostDirectory {
    root: PathBuf,
    /// The directory above, and the name.
    directories: Vec<(u32, u32)>,
    files: Vec<HostFile>,
    /// Names, each after its length in a byte.
    names: Vec<u8>,
}

struct HostFile {
    directory: u32,
    name: u32,
    fingerprint: u64,
}

impl HostDirectory {
    fn name(&mut self, name: &[u8]) -> Result<u32> {
        let at = u32::try_from(self.names.len());
        let at = at.map_err(|_| Error::limit(self.root.display(), "names need more than 4 GiB"))?;
        self.names.push(name.len() as u8);
        self.names.extend_from_slice(name);
        Ok(at)
    }

    fn text(&self, at: u32) -> OsString {
        let at = at as usize;
        let length = usize::from(self.names[at]);
        OsString::from_vec(self.names[at + 1..at + 1 + length].to_vec())
    }

    fn path(&self, file: &HostFile) -> PathBuf {
        let mut parts = vec![self.text(file.name)];
        let mut directory = file.directory;
        while directory != 0 {
            let (above, name) = self.directories[directory as usize];
            parts.push(self.text(name));
            directory = above;
        }
        let mut path = self.root.clone();
        path.extend(parts.into_iter().rev());
        path
    }
}

impl Source for HostDirectory {
    fn describe(&self) -> String {
        self.root.display().to_string()
    }

    fn open_item(&self, item: u32) -> Result<Box<dyn Item + '_>> {
        let known = &self.files[item as usize];
        let path = self.path(known);
        let name = path.display().to_string();
        let file = match open(&path) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Err(Error::Changed(name)),
            Err(error) => return Err(Error::io(name, error)),
        };
        Ok(Box::new(OpenFile {
            file,
            name,
            fingerprint: known.fingerprint,
        }))
    }
}

/// Opens what was a regular file: neither what a link that was put there leads to, nor waiting for a pipe.
fn open(path: &Path) -> std::result::Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).map(File::from)
}

struct OpenFile {
    file: File,
    name: String,
    fingerprint: u64,
}

impl Item for OpenFile {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buffer, at).map_err(|error| {
            // Another file may be there by now, even one that cannot be read.
            let is_short = error.kind() == io::ErrorKind::UnexpectedEof;
            match is_short || matches!(self.finish(), Err(Error::Changed(_))) {
                true => Error::Changed(self.name.clone()),
                false => Error::io(&self.name, error),
            }
        })
    }

    fn finish(&self) -> Result<()> {
        let now = self
            .file
            .metadata()
            .map_err(|error| Error::io(&self.name, error))?;
        if fingerprint(&now) == self.fingerprint {
            Ok(())
        } else {
            Err(Error::Changed(self.name.clone()))
        }
    }
}
