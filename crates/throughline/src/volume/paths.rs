//! Calls by path on a [`Volume`], like those of `std::fs`, relative to its root directory.
//!
//! Each is atomic across a crash, and durable with the next sync or commit.

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
    /// Errors of reading it.
    pub fn root(&self) -> Result<Dir> {
        Dir::new(self, self.fs().root()?)
    }

    /// Opens a directory; symbolic links are followed.
    ///
    /// # Errors
    /// [`Reason::NotFound`], [`Reason::NotDir`], [`Reason::Loop`], [`Reason::NameTooLong`]; damage; device
    /// errors.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        self.root()?.open_dir(path)
    }

    /// The names in a directory.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        self.root()?.read_dir(path)
    }

    /// Opens a regular file, for writing too if the volume is writable; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Dir::open_file`].
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.root()?.open_file(path)
    }

    /// Creates a regular file, or truncates an existing one to zero length; as [`Dir::create_file`].
    ///
    /// **Until a sync or the next commit**
    /// ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**, as a
    /// whole.
    ///
    /// # Errors
    /// The same.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.root()?.create_file(path)
    }

    /// As [`Volume::create_file`]; a new file gets these attributes.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// The same.
    pub fn create_file_with(
        &self,
        path: impl AsRef<Path>,
        attributes: &Attributes,
    ) -> Result<File> {
        self.root()?.create_file_with(path, attributes)
    }

    /// Creates a regular file; the name must not exist, not even as a symbolic link.
    ///
    /// **Until a sync or the next commit**
    /// ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**, as a
    /// whole.
    ///
    /// # Errors
    /// As [`Dir::create_new`].
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File> {
        self.root()?.create_new(path)
    }

    /// As [`Volume::create_new`], with these attributes.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// The same.
    pub fn create_new_with(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<File> {
        self.root()?.create_new_with(path, attributes)
    }

    /// Creates a directory.
    ///
    /// **Until a sync or the next commit**
    /// ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**, as a
    /// whole.
    ///
    /// # Errors
    /// As [`Dir::create_dir`].
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        self.root()?.create_dir(path)
    }

    /// As [`Volume::create_dir`], with these attributes.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// The same.
    pub fn create_dir_with(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<Dir> {
        self.root()?.create_dir_with(path, attributes)
    }

    /// Metadata of the inode at `path`; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.root()?.metadata(path)
    }

    /// As [`Volume::metadata`], but a final symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.root()?.symlink_metadata(path)
    }

    /// Sets attributes; symbolic links are followed.
    ///
    /// **Until a sync or the next commit**
    /// ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**, as a
    /// whole.
    ///
    /// # Errors
    /// As [`Volume::open_dir`]; [`Reason::Permission`] for an immutable or append-only file,
    /// [`Reason::ReadOnly`].
    pub fn set_attributes(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<()> {
        self.root()?.set_attributes(path, attributes)
    }

    /// As [`Volume::set_attributes`], but a final symbolic link is not followed. Its mode is not changed.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// The same.
    pub fn set_symlink_attributes(
        &self,
        path: impl AsRef<Path>,
        attributes: &Attributes,
    ) -> Result<()> {
        self.root()?.set_symlink_attributes(path, attributes)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Reason::Invalid`] if it is not a symbolic link; as [`Volume::open_dir`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.root()?.read_link(path)
    }

    /// Creates a symbolic link `link` to `target`.
    ///
    /// **Until a sync or the next commit**
    /// ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**, as a
    /// whole.
    ///
    /// # Errors
    /// As [`Dir::symlink`].
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.root()?.symlink(target, link)
    }

    /// As [`Volume::symlink`], with these attributes.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// The same.
    pub fn symlink_with(
        &self,
        target: impl AsRef<Path>,
        link: impl AsRef<Path>,
        attributes: &Attributes,
    ) -> Result<()> {
        self.root()?.symlink_with(target, link, attributes)
    }

    /// Creates the hard link `link` to a file. A final symbolic link is not followed, but linked itself.
    ///
    /// **Until a sync or the next commit**
    /// ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**, as a
    /// whole.
    ///
    /// # Errors
    /// As [`Dir::link_inode`].
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.root()?.hard_link(original, link)
    }

    /// Creates a device, a fifo or a socket.
    ///
    /// **Until a sync or the next commit**
    /// ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**, as a
    /// whole.
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

    /// Removes the name of anything but a directory.
    ///
    /// **Until a sync or the next commit**
    /// ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**, as a
    /// whole.
    ///
    /// # Errors
    /// As [`Dir::remove_file`].
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.root()?.remove_file(path)
    }

    /// Removes an empty directory.
    ///
    /// **Until a sync or the next commit**
    /// ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**, as a
    /// whole.
    ///
    /// # Errors
    /// As [`Dir::remove_dir`].
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.root()?.remove_dir(path)
    }

    /// Renames atomically; a file or an empty directory at `to` is replaced.
    ///
    /// **Until a sync or the next commit**
    /// ([`OpenOptions::commit_interval`](crate::OpenOptions::commit_interval)) **a crash undoes it**, as a
    /// whole.
    ///
    /// # Errors
    /// As [`Volume::rename_with`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.root()?.rename(from, to)
    }

    /// Renames atomically; `mode` says what happens to a file at `to`.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::NotFound`], [`Reason::Exists`] (with [`RenameMode::NoReplace`]), [`Reason::NotEmpty`],
    /// [`Reason::NotDir`], [`Reason::IsDir`], [`Reason::Invalid`] (a directory into itself), [`Reason::Busy`]
    /// (the root), [`Reason::NoSpace`], [`Reason::ReadOnly`].
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        self.root()?.rename_with(from, to, mode)
    }
}
