//! The calls by path on a [`Volume`], as `std::fs` has them for the host: those of its root directory.
//!
//! Each is atomic over a crash, and durable with the next sync or commit.

use std::path::{Path, PathBuf};

#[cfg(doc)]
use throughline_ext::Reason;
use throughline_ext::RenameMode;

use super::Volume;
use crate::dir::{Dir, ReadDir};
use crate::error::Result;
use crate::file::File;
use crate::metadata::{Attributes, DeviceNumber, FileType, Metadata};

impl Volume {
    /// The root directory.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn root(&self) -> Result<Dir> {
        Dir::new(self, self.fs().root()?)
    }

    /// Opens a directory; symbolic links are followed.
    ///
    /// # Errors
    /// [`Reason::NotFound`], [`Reason::NotDir`], [`Reason::Loop`], [`Reason::NameTooLong`]; damage; the device's.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        self.root()?.open_dir(path)
    }

    /// The names in a directory.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        self.open_dir(path)?.entries()
    }

    /// Opens a regular file, for writing too where the volume is; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Dir::open_file`].
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.root()?.open_file(path)
    }

    /// Makes a regular file, or empties the one that is there; as [`Dir::create_file`].
    ///
    /// **Until a sync or the next commit** ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**,
    /// as a whole.
    ///
    /// # Errors
    /// As there.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.root()?.create_file(path)
    }

    /// As [`Volume::create_file`], a new file with these attributes.
    ///
    /// # Errors
    /// As there.
    pub fn create_file_with(
        &self,
        path: impl AsRef<Path>,
        attributes: &Attributes,
    ) -> Result<File> {
        self.root()?.create_file_with(path, attributes)
    }

    /// Makes a regular file where there is nothing yet, not even a symbolic link.
    ///
    /// **Until a sync or the next commit** ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**,
    /// as a whole.
    ///
    /// # Errors
    /// As [`Dir::create_new`].
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File> {
        self.root()?.create_new(path)
    }

    /// As [`Volume::create_new`], with these attributes.
    ///
    /// # Errors
    /// As there.
    pub fn create_new_with(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<File> {
        self.root()?.create_new_with(path, attributes)
    }

    /// Makes a directory.
    ///
    /// **Until a sync or the next commit** ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**,
    /// as a whole.
    ///
    /// # Errors
    /// As [`Dir::create_dir`].
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        self.root()?.create_dir(path)
    }

    /// As [`Volume::create_dir`], with these attributes.
    ///
    /// # Errors
    /// As there.
    pub fn create_dir_with(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<Dir> {
        self.root()?.create_dir_with(path, attributes)
    }

    /// What a path stands for; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.root()?.metadata(path)
    }

    /// As [`Volume::metadata`], of a symbolic link itself.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.root()?.symlink_metadata(path)
    }

    /// Sets attributes; symbolic links are followed.
    ///
    /// **Until a sync or the next commit** ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**,
    /// as a whole.
    ///
    /// # Errors
    /// As [`Volume::open_dir`]; [`Reason::Permission`] for an immutable or append-only file, [`Reason::ReadOnly`].
    pub fn set_attributes(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<()> {
        self.root()?.set_attributes(path, attributes)
    }

    /// As [`Volume::set_attributes`], of a symbolic link itself; its mode stays as it is.
    ///
    /// # Errors
    /// As there.
    pub fn set_symlink_attributes(
        &self,
        path: impl AsRef<Path>,
        attributes: &Attributes,
    ) -> Result<()> {
        self.root()?.set_symlink_attributes(path, attributes)
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// [`Reason::Invalid`] for anything else; as [`Volume::open_dir`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.root()?.read_link(path)
    }

    /// Makes a symbolic link at `link` that points to `target`.
    ///
    /// **Until a sync or the next commit** ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**,
    /// as a whole.
    ///
    /// # Errors
    /// As [`Dir::symlink`].
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.root()?.symlink(target, link)
    }

    /// As [`Volume::symlink`], with these attributes.
    ///
    /// # Errors
    /// As there.
    pub fn symlink_with(
        &self,
        target: impl AsRef<Path>,
        link: impl AsRef<Path>,
        attributes: &Attributes,
    ) -> Result<()> {
        self.root()?.symlink_with(target, link, attributes)
    }

    /// Gives a file (a symbolic link itself) the additional name `link`.
    ///
    /// **Until a sync or the next commit** ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**,
    /// as a whole.
    ///
    /// # Errors
    /// As [`Dir::link_inode`].
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.root()?.hard_link(original, link)
    }

    /// Makes a device, a fifo or a socket.
    ///
    /// **Until a sync or the next commit** ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**,
    /// as a whole.
    ///
    /// # Errors
    /// As [`Dir::make_node`].
    pub fn make_node(
        &self,
        path: impl AsRef<Path>,
        kind: FileType,
        device: Option<DeviceNumber>,
        attributes: &Attributes,
    ) -> Result<()> {
        self.root()?.make_node(path, kind, device, attributes)
    }

    /// Takes away a name of anything but a directory.
    ///
    /// **Until a sync or the next commit** ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**,
    /// as a whole.
    ///
    /// # Errors
    /// As [`Dir::remove_file`].
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.root()?.remove_file(path)
    }

    /// Takes away an empty directory.
    ///
    /// **Until a sync or the next commit** ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**,
    /// as a whole.
    ///
    /// # Errors
    /// As [`Dir::remove_dir`].
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.root()?.remove_dir(path)
    }

    /// Renames, atomically; a file or an empty directory at `to` is replaced.
    ///
    /// **Until a sync or the next commit** ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**,
    /// as a whole.
    ///
    /// # Errors
    /// As [`Volume::rename_with`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.root()?.rename(from, to)
    }

    /// Renames, atomically; the mode says what becomes of a file at `to`.
    ///
    /// # Errors
    /// [`Reason::NotFound`], [`Reason::Exists`] (with [`RenameMode::NoReplace`]), [`Reason::NotEmpty`],
    /// [`Reason::NotDir`], [`Reason::IsDir`], [`Reason::Invalid`] (a directory into itself), [`Reason::Busy`] (the root),
    /// [`Reason::NoSpace`], [`Reason::ReadOnly`].
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        self.root()?.rename_with(from, to, mode)
    }
}
