//! The file of an image before it has its name.
//!
//! Where the host's file system can do it, the file has no name at all (`O_TMPFILE`): the system frees it
//! when the process ends, however it ends. Elsewhere it has a temporary name, which a killed process leaves
//! behind.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use tempfile::NamedTempFile;

/// The permissions of an image, before the umask.
const MODE: u32 = 0o666;
/// Errors that a file with a name would meet, too.
const NO_FILE: [Errno; 8] = [
    Errno::NOTDIR,
    Errno::ACCESS,
    Errno::PERM,
    Errno::ROFS,
    Errno::NOSPC,
    Errno::DQUOT,
    Errno::LOOP,
    Errno::NAMETOOLONG,
];
/// Attempts to find a temporary name that is free.
const ATTEMPTS: u32 = 100;

/// A file in the directory of an image. It goes away with the value, unless it gets a name.
#[derive(Debug)]
pub enum NewFile {
    /// Without a name: the file, and the path that leads to it in this process.
    #[doc(hidden)]
    Nameless(File, PathBuf),
    /// With a temporary name.
    #[doc(hidden)]
    Named(NamedTempFile),
}

impl NewFile {
    /// Makes an empty file in the directory of `image`.
    ///
    /// # Errors
    /// If there can be none.
    pub fn new(image: &Path) -> io::Result<NewFile> {
        match NewFile::nameless(image) {
            Ok(Some(file)) => Ok(file),
            Ok(None) => NewFile::named(image),
            Err(error) => Err(error.into()),
        }
    }

    /// `None`: the file system, or this process without `/proc`, has no files without names. An error: it has
    /// none with names either.
    fn nameless(image: &Path) -> Result<Option<NewFile>, Errno> {
        let directory = directory_of(image);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match rustix::fs::open(directory, flags, Mode::from_raw_mode(MODE)) {
            Ok(file) => File::from(file),
            Err(error) if NO_FILE.contains(&error) => return Err(error),
            // Old kernels say this of file systems without such files, too.
            Err(Errno::NOENT) if !directory.exists() => return Err(Errno::NOENT),
            Err(_) => return Ok(None),
        };
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
        let here = file.metadata().map(identity);
        let there = std::fs::metadata(&path).map(identity);
        let is_same = matches!((here, there), (Ok(here), Ok(there)) if here == there);
        Ok(is_same.then_some(NewFile::Nameless(file, path)))
    }

    fn named(image: &Path) -> io::Result<NewFile> {
        tempfile::Builder::new()
            .prefix(".pack-")
            .suffix(".tmp")
            .permissions(Permissions::from_mode(MODE))
            .tempfile_in(directory_of(image))
            .map(NewFile::Named)
    }

    /// A path by which this process can open the file.
    pub fn path(&self) -> &Path {
        match self {
            NewFile::Nameless(_, path) => path,
            NewFile::Named(file) => file.path(),
        }
    }

    /// Gives the file its name. A regular file of that name is replaced if `overwrite`, at once: there is no
    /// moment without one. The new file has its permissions, and its owner if this process may give it that.
    ///
    /// # Errors
    /// `AlreadyExists`, and those of the file system.
    pub fn persist(self, image: &Path, overwrite: bool) -> io::Result<()> {
        if overwrite {
            self.resemble(image)?;
        }
        match self {
            NewFile::Nameless(_, path) => match link(&path, image) {
                Err(error) if overwrite && error.kind() == io::ErrorKind::AlreadyExists => {
                    replace(&path, image)
                }
                other => other,
            },
            NewFile::Named(file) if overwrite => file.persist(image).map(drop).map_err(Into::into),
            NewFile::Named(file) => file.persist_noclobber(image).map(drop).map_err(Into::into),
        }
    }

    /// Takes over the permissions and the owner of the file that is replaced, if there is one.
    fn resemble(&self, image: &Path) -> io::Result<()> {
        let Ok(before) = image.symlink_metadata() else {
            return Ok(());
        };
        let file = match self {
            NewFile::Nameless(file, _) => file,
            NewFile::Named(file) => file.as_file(),
        };
        // Only root may give a file away. Before the permissions: the kernel may take some of them away.
        let _ = fchown(file, Some(before.uid()), Some(before.gid()));
        file.set_permissions(before.permissions())
    }
}

/// The directory that a file is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn link(path: &Path, name: &Path) -> io::Result<()> {
    rustix::fs::linkat(CWD, path, CWD, name, AtFlags::SYMLINK_FOLLOW).map_err(Into::into)
}

/// A link does not replace a name, but renaming does.
fn replace(path: &Path, image: &Path) -> io::Result<()> {
    let process = std::process::id();
    for attempt in 0..ATTEMPTS {
        let name = directory_of(image).join(format!(".pack-{process}-{attempt}.tmp"));
        match link(path, &name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => {
                return std::fs::rename(&name, image).inspect_err(|_| {
                    // The first error is the one that counts.
                    let _ = std::fs::remove_file(&name);
                });
            }
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Both kinds: a new name, a name that is kept, a name that is replaced.
    #[test]
    fn a_name_is_given_once_or_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        let count = || {
            std::fs::read_dir(folder.path())
                .expect("it is there")
                .count()
        };
        let missing = NewFile::new(&folder.path().join("none/image")).expect_err("no directory");
        assert_eq!(missing.raw_os_error(), Some(Errno::NOENT.raw_os_error()));
        for make in [NewFile::new, NewFile::named] {
            let write = |text: &str| {
                let file = make(&image).expect("a file");
                let mut open = File::options()
                    .write(true)
                    .open(file.path())
                    .expect("it opens");
                open.write_all(text.as_bytes()).expect("it is written");
                file
            };
            drop(write("nothing"));
            assert_eq!(count(), 0);
            write("one").persist(&image, false).expect("a new name");
            let taken = write("two").persist(&image, false).expect_err("it exists");
            assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(std::fs::read(&image).expect("it is there"), b"one");
            std::fs::set_permissions(&image, Permissions::from_mode(0o640)).expect("they are set");
            write("three")
                .persist(&image, true)
                .expect("it is replaced");
            let mode = image.metadata().expect("it is there").mode();
            assert_eq!(mode & 0o7777, 0o640);
            assert_eq!(std::fs::read(&image).expect("it is there"), b"three");
            assert_eq!(count(), 1);
            std::fs::remove_file(&image).expect("it goes");
        }
    }
}
