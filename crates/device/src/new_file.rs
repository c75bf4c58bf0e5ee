//! The file of an image before it has its name.
//!
//! Where the host's file system can do it, the file has no name at all (`O_TMPFILE`): the system frees it
//! when the process ends, however it ends. Elsewhere, and while another file is replaced, it has a temporary
//! name, which a killed process leaves behind. The next new file in that directory removes it.
//!
//! Invariants:
//! - Who makes a file with a temporary name holds a `flock` on it before it can be taken for a leftover.
//! - What is removed has such a name and our owner, and is locked by nobody; nobody can have it locked on
//!   another machine.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::host::is_of_this_machine;

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
/// What temporary names begin and end with.
const PREFIX: &str = ".throughline-";
const SUFFIX: &str = ".unfinished";

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
        remove_leftovers(directory_of(image));
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
        // For the time when it has a temporary name, because it replaces another file.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let is_there = is_same(&file, std::fs::metadata(&path));
        Ok(is_there.then_some(NewFile::Nameless(file, path)))
    }

    fn named(image: &Path) -> io::Result<NewFile> {
        let prefix = format!("{PREFIX}{}-", boot());
        for _ in 0..ATTEMPTS {
            let file = tempfile::Builder::new()
                .prefix(&prefix)
                .suffix(SUFFIX)
                .permissions(Permissions::from_mode(MODE))
                .tempfile_in(directory_of(image))?;
            let locked = flock(file.as_file(), FlockOperation::NonBlockingLockExclusive);
            let taken = locked == Err(Errno::WOULDBLOCK);
            // Before the lock, another process may have taken it for a leftover.
            if !taken && is_same(file.as_file(), file.path().symlink_metadata()) {
                return Ok(NewFile::Named(file));
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// The open file.
    pub fn file(&self) -> &File {
        match self {
            NewFile::Nameless(file, _) => file,
            NewFile::Named(file) => file.as_file(),
        }
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
            // `self` keeps the file open, and with it the lock, until it has its last name.
            NewFile::Nameless(_, ref path) => match link(path, image) {
                Err(error) if overwrite && error.kind() == io::ErrorKind::AlreadyExists => {
                    replace(path, image)
                }
                other => other,
            },
            NewFile::Named(file) if overwrite => file.persist(image).map(drop).map_err(Into::into),
            NewFile::Named(file) => file.persist_noclobber(image).map(drop).map_err(Into::into),
        }
    }

    /// Takes over the permissions and the owner of the file that is replaced, if there is one.
    fn resemble(&self, image: &Path) -> io::Result<()> {
        let before = image.symlink_metadata().ok();
        // A link that others have put there has the permissions of no file.
        let Some(before) = before.filter(std::fs::Metadata::is_file) else {
            return Ok(());
        };
        let file = self.file();
        // Only root may give a file away. Before the permissions: the kernel may take some of them away.
        let _ = fchown(file, Some(before.uid()), Some(before.gid()));
        file.set_permissions(before.permissions())
    }
}

fn is_same(file: &File, found: io::Result<std::fs::Metadata>) -> bool {
    let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), found) {
        (Ok(here), Ok(there)) => identity(here) == identity(there),
        _ => false,
    }
}

/// Tells machines apart, and the times that one was started.
fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let digits = id.unwrap_or_default().replace('-', "");
    digits.chars().take(16).collect()
}

/// Removes what processes that were killed left in a directory. What cannot be removed stays.
fn remove_leftovers(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    let here = format!("{PREFIX}{}-", boot());
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            let _ = remove_leftover(&entry.path(), name.starts_with(&here));
        }
    }
}

/// `is_ours`: it was made on this machine, since that was started.
fn remove_leftover(path: &Path, is_ours: bool) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let found = file.metadata()?;
    let is_own = found.is_file() && found.uid() == rustix::process::geteuid().as_raw();
    // A lock is seen by all who have the file only if the file system is of this machine.
    if !is_own || !(is_ours || is_of_this_machine(&file)) {
        return Ok(());
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // Names are given only to files that are locked, so the name that leads to this one stays its name.
    match is_same(&file, path.symlink_metadata()) {
        true => std::fs::remove_file(path),
        false => Ok(()),
    }
}

/// The directory that a file is in.
pub fn directory_of(path: &Path) -> &Path {
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
    let (boot, process) = (boot(), std::process::id());
    for attempt in 0..ATTEMPTS {
        let name = format!("{PREFIX}{boot}-{process}-{attempt}{SUFFIX}");
        let name = directory_of(image).join(name);
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

    /// What was killed is removed; what is at work, and what is no file of ours, is not.
    #[test]
    fn leftovers_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        let left = |name: &str| {
            let path = folder.path().join(name);
            File::create(&path).expect("a file");
            path
        };
        let boot = boot();
        let dead = left(&format!("{PREFIX}{boot}-dead{SUFFIX}"));
        let named = left(".throughline-notes");
        let folder_of_that_name = folder.path().join(format!("{PREFIX}folder{SUFFIX}"));
        std::fs::create_dir(&folder_of_that_name).expect("a folder");
        let link = folder.path().join(format!("{PREFIX}link{SUFFIX}"));
        std::os::unix::fs::symlink(&named, &link).expect("a link");
        let alive = NewFile::named(&image).expect("a file");
        let new = NewFile::new(&image).expect("a file");
        assert!(!dead.exists());
        for kept in [alive.path(), &named, &folder_of_that_name, &link] {
            assert!(kept.symlink_metadata().is_ok(), "{}", kept.display());
        }
        let other = folder.path().join("other");
        alive.persist(&other, false).expect("a name");
        new.persist(&image, false).expect("a name");
        assert!(image.exists() && other.exists());
    }
}
