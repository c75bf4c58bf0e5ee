//! [`Dir`], an open directory, and calls by path relative to it.
//!
//! A path may have several components. Relative paths start at the directory, absolute ones at the volume's
//! root.

mod builder;
mod entries;
mod place;
mod tree;
mod walk;
mod whole;

use std::fmt;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use place::Found;
use throughline_ext::{Fs, Inode, InodeNumber, Last, Reason, RenameMode};

pub use builder::DirBuilder;
pub use entries::{DirEntry, ReadDir};
pub(crate) use entries::{impossible_name, is_name};
pub use walk::{Walk, WalkEntry};

use crate::error::Result;
use crate::file::File;
#[cfg(doc)]
use crate::handle::Handle;
use crate::metadata::{Attributes, Metadata};
use crate::mode::FileOptions;
use crate::node::{NewNode, Node};
use crate::ops;
use crate::volume::{Mounted, Volume, path_from};
use crate::xattrs::Xattrs;

/// An open directory: the calls by path. It stays open across renames. Clones share the same directory. A
/// [`Volume`] dereferences to its root directory.
///
/// Paths are relative to the directory, and absolute ones begin at the root of the volume. `.` is the
/// directory itself: `dir.metadata(".")`.
#[derive(Clone)]
pub struct Dir {
    pub(crate) mounted: Arc<Mounted>,
    /// `None`: the root of the volume, which needs no holding, and is read by the calls that need it.
    node: Option<Node>,
}

const ROOT: u64 = InodeNumber::ROOT.0 as u64;

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dir")
            .field("ino", &self.node.as_ref().map_or(ROOT, Node::ino))
            .finish_non_exhaustive()
    }
}

impl Dir {
    pub(crate) fn of(node: Node) -> Result<Dir> {
        if !node.is_dir() {
            return Err(Reason::NotDir.into());
        }
        Ok(Dir {
            mounted: Arc::clone(node.volume().mounted()),
            node: Some(node),
        })
    }

    pub(crate) fn root_of(mounted: Arc<Mounted>) -> Dir {
        Dir {
            mounted,
            node: None,
        }
    }

    /// The volume that contains the directory.
    pub fn volume(&self) -> Volume {
        Volume::of(Arc::clone(&self.mounted))
    }

    fn fs(&self) -> &Fs {
        self.mounted.fs()
    }

    /// The directory itself, held.
    fn own(&self) -> Result<Node> {
        match &self.node {
            Some(node) => Ok(node.clone()),
            None => Node::new(&self.volume(), self.fs().root()?),
        }
    }

    pub(crate) fn find(&self, path: impl AsRef<Path>, last: Last) -> Result<Found<'_>> {
        let path = path.as_ref().as_os_str().as_bytes();
        let place = match &self.node {
            Some(node) => self.fs().place_from(node.inode(), path, last)?,
            None => self.fs().place_from(&self.fs().root()?, path, last)?,
        };
        Ok(Found::new(self, place))
    }

    /// An iterator over the directory's names, without `.` and `..`; it reads them lazily.
    ///
    /// # Errors
    /// Errors of reading the root directory of a volume; each entry may be an error.
    pub fn entries(&self) -> Result<ReadDir> {
        Ok(ReadDir::new(Arc::clone(self.own()?.held()), Path::new("")))
    }

    /// An iterator over the names in the directory at `path`, without `.` and `..`.
    ///
    /// # Errors
    /// As [`Dir::open_dir`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let dir = self.open_dir(&path)?.own()?;
        Ok(ReadDir::new(Arc::clone(dir.held()), path.as_ref()))
    }

    /// Returns when the directory's current names survive a crash (`fsync` of a directory). To make a new
    /// file's name durable, [`Handle::sync_all`](crate::Handle::sync_all) of the file is enough.
    ///
    /// # Errors
    /// The device's error, on every call until the sync succeeds.
    pub fn sync(&self) -> Result<()> {
        self.own()?.sync(false)
    }

    /// Metadata of the inode at `path`; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Dir::open_dir`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Metadata::of(self.fs(), self.find(path, Last::Follow)?.inode()?)
    }

    /// As [`Dir::metadata`], but a final symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Dir::open_dir`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Metadata::of(self.fs(), self.find(path, Last::NoFollow)?.inode()?)
    }

    /// Sets attributes; symbolic links are followed.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Dir::open_dir`]; [`Reason::Permission`] for an immutable or append-only file,
    /// [`Reason::ReadOnly`].
    pub fn set_attributes(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<()> {
        let node = self.find(path, Last::Follow)?.node()?;
        ops::set_attributes(&node, attributes).into_result()
    }

    /// As [`Dir::set_attributes`], but a final symbolic link is not followed. Its mode is not changed.
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
        let node = self.node(path)?;
        let mut attributes = attributes.clone();
        if node.inode().is_symlink() {
            attributes.mode = None;
        }
        ops::set_attributes(&node, &attributes).into_result()
    }

    /// Sets the permission bits, as `std::fs::set_permissions`. Symbolic links are followed. Other
    /// attributes: [`Dir::set_attributes`].
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Dir::set_attributes`].
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        let mode = permissions.mode() & 0o7777;
        self.set_attributes(path, &Attributes::new().mode(mode))
    }

    /// The extended attributes and access control lists (POSIX ACLs) of the inode at `path`, to be read and
    /// set; symbolic links are followed. For those of a link itself, use [`Dir::node`] and [`Node::xattrs`].
    ///
    /// ```no_run
    /// # fn main() -> throughline::Result<()> {
    /// # let volume = throughline::OpenOptions::new().write(true).open("disk.img")?;
    /// volume.xattrs("/motd")?.set("user.comment", "for everybody")?;
    /// let value = volume.xattrs("/motd")?.get("user.comment")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Dir::open_dir`].
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Xattrs> {
        Ok(self.find(path, Last::Follow)?.node()?.xattrs())
    }

    /// The inode at `path`, held; a final symbolic link is not followed. It has what servers and tools need:
    /// flags, project, generation, blocks.
    ///
    /// # Errors
    /// As [`Dir::open_dir`].
    pub fn node(&self, path: impl AsRef<Path>) -> Result<Node> {
        self.find(path, Last::NoFollow)?.node()
    }

    /// Opens a directory; symbolic links are followed.
    ///
    /// # Errors
    /// [`Reason::NotFound`], [`Reason::NotDir`], [`Reason::Loop`], [`Reason::NameTooLong`]; damage; device
    /// errors.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        self.dir_at(path, Last::Follow)
    }

    fn dir_at(&self, path: impl AsRef<Path>, last: Last) -> Result<Dir> {
        Dir::of(self.find(path, last)?.node()?)
    }

    /// Opens a regular file, for writing too if the volume is writable; symbolic links are followed.
    ///
    /// # Errors
    /// [`Reason::IsDir`]; [`Reason::Invalid`] for a device, fifo or socket; as [`Dir::open_dir`].
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.find(path, Last::Follow)?.node()?.open_file()
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Reason::Invalid`] if it is not a symbolic link; as [`Dir::open_dir`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let found = self.find(path, Last::NoFollow)?;
        Ok(path_from(self.fs().read_link(found.inode()?)?))
    }

    /// Creates a regular file with mode 0o666, or truncates an existing one to zero length; symbolic links
    /// are followed. The process's umask is not applied. [`FileOptions`] creates files with other attributes.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::IsDir`], [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Dir::open_dir`].
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        let mut options = FileOptions::of(self.mounted.mode());
        options.create(true).truncate(true).open(self, path)
    }

    /// Creates a regular file; the name must not exist, not even as a symbolic link.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Exists`], [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Dir::open_dir`].
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File> {
        self.make_node(path, NewNode::File, &Attributes::new())?
            .open_file()
    }

    /// Creates a directory with mode 0o777. [`DirBuilder`] creates directories with other attributes.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Exists`], [`Reason::TooManyLinks`], [`Reason::NoSpace`], [`Reason::ReadOnly`]; as
    /// [`Dir::open_dir`].
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        DirBuilder::new().create(self, path)
    }

    /// Creates a directory and its missing parents. An existing directory is not an error.
    ///
    /// **Until a sync or the next commit, a crash undoes it, as a whole or in part** ([what is
    /// durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::NotDir`] if something else has the name; as [`Dir::create_dir`].
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<Dir> {
        DirBuilder::new().recursive(true).create(self, path)
    }

    /// Creates a symbolic link `link` to `target`: any text of at least 1 byte and less than a block.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Exists`], [`Reason::NotFound`] (empty target), [`Reason::NameTooLong`] (target too long),
    /// [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Dir::open_dir`].
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let target = NewNode::Symlink(target.as_ref().as_os_str().as_bytes());
        self.make_node(link, target, &Attributes::new())?;
        Ok(())
    }

    /// Creates an inode of any kind, with these attributes: a file, directory or symbolic link, or a fifo,
    /// socket or device. The name must not exist, not even as a symbolic link. The default mode is 0o777 for
    /// directories and symbolic links, and 0o666 for all others.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Invalid`] for too large device numbers; as [`Dir::create_new`], [`Dir::create_dir`] and
    /// [`Dir::symlink`].
    pub fn make_node(
        &self,
        path: impl AsRef<Path>,
        kind: NewNode<'_>,
        attributes: &Attributes,
    ) -> Result<Node> {
        let found = self.find(path, Last::Name)?;
        if !matches!(kind, NewNode::File | NewNode::Directory) {
            found.free_name_of_other()?;
        }
        found.create(kind, attributes)
    }

    /// Creates the hard link `link` to a file. A final symbolic link is not followed, but linked itself.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Dir::link_node`].
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.link_node(&self.node(original)?, link)
    }

    /// Creates the hard link `link` to an inode, which may have lost its last name ([`Node::tmpfile`]).
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Permission`] for a directory, [`Reason::Exists`], [`Reason::TooManyLinks`],
    /// [`Reason::NotFound`] for an inode that can have no name, [`Reason::CrossDevice`] for one of another
    /// volume, [`Reason::NoSpace`], [`Reason::ReadOnly`].
    pub fn link_node(&self, node: &Node, link: impl AsRef<Path>) -> Result<()> {
        let found = self.find(link, Last::Name)?;
        ops::link(&found.parent()?, node, found.free_name_of_other()?).into_result()
    }

    /// Removes the name of anything but a directory. The file is freed when its last name is gone and it is
    /// no longer open.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::NotFound`], [`Reason::IsDir`], [`Reason::Permission`], [`Reason::ReadOnly`].
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let found = self.find(path, Last::Name)?.removable()?;
        if found.place.slash {
            return Err(Reason::NotDir.into());
        }
        ops::unlink(&found.parent()?, &found.place.name).into_result()
    }

    /// Removes an empty directory.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::NotFound`], [`Reason::NotDir`], [`Reason::NotEmpty`], [`Reason::Permission`],
    /// [`Reason::ReadOnly`], [`Reason::Busy`] for the root.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let found = self.find(path, Last::Name)?.removable()?;
        ops::rmdir(&found.parent()?, &found.place.name).into_result()
    }

    /// Renames atomically; a file or an empty directory at `to` is replaced.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Dir::rename_with`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
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
        let from = self.find(from, Last::Name)?.removable()?;
        let to = self.find(to, Last::Name)?.removable()?;
        let is_other = |inode: &Arc<Inode>| !inode.is_dir();
        if (from.place.slash || to.place.slash) && from.place.inode.as_ref().is_some_and(is_other) {
            return Err(Reason::NotDir.into());
        }
        let (dir, new_dir) = (from.parent()?, to.parent()?);
        let (old, new) = ((&dir, &*from.place.name), (&new_dir, &*to.place.name));
        ops::rename(old, new, mode).into_result()
    }
}
