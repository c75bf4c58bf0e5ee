//! The names in a directory.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{FileType, RawDir, SeekFrom};
use rustix::io::Result;

/// Bytes read from a directory at a time.
const CHUNK: usize = 32 << 10;

/// All names in a directory but `.` and `..`, in the order in which the host lists them. Each takes two bytes
/// besides its own.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Each name: [`FOLDER`], [`FILE`] or [`OTHER`], its bytes, and a NUL.
    bytes: Vec<u8>,
    /// Where the next one begins.
    at: usize,
}

/// The name of a directory.
const FOLDER: u8 = b'd';
/// The name of a regular file.
const FILE: u8 = b'f';
/// The name of something else, or of what the host does not say.
const OTHER: u8 = b'-';

impl Names {
    /// Reads an open directory from its start. No other thread may read it meanwhile.
    ///
    /// # Errors
    /// The system's.
    pub fn read(dir: impl AsFd) -> Result<Names> {
        let mut names = Names::default();
        each(dir, |name, kind| {
            names.bytes.push(match kind {
                FileType::Directory => FOLDER,
                FileType::RegularFile => FILE,
                _ => OTHER,
            });
            names.bytes.extend_from_slice(name);
            names.bytes.push(0);
            true
        })?;
        names.bytes.shrink_to_fit();
        Ok(names)
    }

    /// Whether an open directory has no names, as one that was just made.
    ///
    /// # Errors
    /// The system's.
    pub fn are_none(dir: impl AsFd) -> Result<bool> {
        let mut none = true;
        each(dir, |_, _| {
            none = false;
            false
        })?;
        Ok(none)
    }
}

/// Each name, and its type where the directory says that it is a directory or a regular file.
impl Iterator for Names {
    type Item = (OsString, FileType);

    fn next(&mut self) -> Option<(OsString, FileType)> {
        let (kind, rest) = self.bytes.get(self.at..)?.split_first()?;
        let name = rest.split(|byte| *byte == 0).next()?;
        self.at += name.len() + 2;
        let kind = match *kind {
            FOLDER => FileType::Directory,
            FILE => FileType::RegularFile,
            _ => FileType::Unknown,
        };
        Some((OsString::from_vec(name.to_vec()), kind))
    }
}

/// Calls `visit` with each name, and the type that the directory says, until that returns false.
fn each(dir: impl AsFd, mut visit: impl FnMut(&[u8], FileType) -> bool) -> Result<()> {
    rustix::fs::seek(&dir, SeekFrom::Start(0))?;
    let mut buffer = Vec::with_capacity(CHUNK);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let is_own = matches!(name, b"." | b"..");
        if !is_own && !visit(name, entry.file_type()) {
            break;
        }
    }
    Ok(())
}
