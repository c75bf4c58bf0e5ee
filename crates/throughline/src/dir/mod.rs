//! [`Dir`], an open directory, and calls by path relative to it.
//!
//! A path may have several components. Relative paths start at the directory, absolute ones at the volume's
//! root.

mod attributes;
mod entries;
mod tree;
mod walk;
mod whole;

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline_ext::{Inode, Last, Place, Reason, RenameMode};

pub use entries::{DirEntry, ReadDir};
pub(crate) use entries::{impossible_name, is_name};
pub use walk::{Walk, WalkEntry};

use crate::error::Result;
use crate::file::File;
use crate::metadata::{Attributes, DeviceNumber, FileType, Metadata};
use crate::node::{NewNode, Node};
use crate::ops;
use crate::volume::{Volume, path_from};

/// An open directory. It stays open across renames. Clones share the same directory.
#[derive(Clone)]
pub struct Dir {
    node: Node,
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dir")
            .field("ino", &self.node.ino())
            .finish_non_exhaustive()
    }
}

impl Dir {
    pub(crate) fn new(volume: &Volume, inode: Arc<Inode>) -> Result<Dir> {
        if !inode.is_dir() {
            return Err(Reason::NotDir.into());
        }
        Ok(Dir {
            node: Node::new(volume, inode)?,
        })
    }

    fn volume(&self) -> &Volume {
        self.node.volume()
    }

    fn place(&self, path: impl AsRef<Path>, last: Last) -> Result<Place> {
        Ok(self.node.fs().place_from(
            self.node.inode(),
            path.as_ref().as_os_str().as_bytes(),
            last,
        )?)
    }

    fn resolve(&self, path: impl AsRef<Path>, last: Last) -> Result<Arc<Inode>> {
        self.place(path, last)?
            .inode
            .ok_or_else(|| Reason::NotFound.into())
    }

    fn node_at(&self, path: impl AsRef<Path>, last: Last) -> Result<Node> {
        Node::new(self.volume(), self.resolve(path, last)?)
    }

    /// The directory of a place.
    fn dir_of(&self, place: &Place) -> Result<Node> {
        match Arc::ptr_eq(&place.dir, self.node.inode()) {
            true => Ok(self.node.clone()),
            false => Node::new(self.volume(), Arc::clone(&place.dir)),
        }
    }

    /// An iterator over the directory's names, without `.` and `..`; it reads them lazily.
    ///
    /// # Errors
    /// None at present; each entry may be an error.
    pub fn entries(&self) -> Result<ReadDir> {
        Ok(ReadDir::new(Arc::clone(self.node.held()), Path::new("")))
    }

    /// An iterator over the names in the directory at `path`, without `.` and `..`.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let dir = self.open_dir(&path)?;
        Ok(ReadDir::new(Arc::clone(dir.node.held()), path.as_ref()))
    }

    /// Metadata of the directory itself.
    ///
    /// # Errors
    /// Damage.
    pub fn own_metadata(&self) -> Result<Metadata> {
        self.node.metadata()
    }

    /// Sets attributes of the directory itself.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Permission`] for an immutable one, [`Reason::ReadOnly`]; device errors.
    pub fn set_own_attributes(&self, attributes: &Attributes) -> Result<()> {
        ops::set_attributes(&self.node, attributes).into_result()
    }

    /// Returns when the directory's current names survive a crash (`fsync` of a directory). To make a new
    /// file's name durable, [`Handle::sync_all`](crate::Handle::sync_all) of the file is enough.
    ///
    /// # Errors
    /// The device's error, on every call until the sync succeeds.
    pub fn sync(&self) -> Result<()> {
        self.node.sync(false)
    }

    /// Metadata of the inode at `path`; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Metadata::of(self.volume(), &*self.resolve(path, Last::Follow)?)
    }

    /// As [`Dir::metadata`], but a final symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Metadata::of(self.volume(), &*self.resolve(path, Last::NoFollow)?)
    }

    /// Sets attributes; symbolic links are followed.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Volume::set_attributes`].
    pub fn set_attributes(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<()> {
        ops::set_attributes(&self.node_at(path, Last::Follow)?, attributes).into_result()
    }

    /// As [`Dir::set_attributes`], but a final symbolic link is not followed. Its mode is not changed.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Volume::set_attributes`].
    pub fn set_symlink_attributes(
        &self,
        path: impl AsRef<Path>,
        attributes: &Attributes,
    ) -> Result<()> {
        let node = self.node_at(path, Last::NoFollow)?;
        let mut attributes = attributes.clone();
        if node.inode().is_symlink() {
            attributes.mode = None;
        }
        ops::set_attributes(&node, &attributes).into_result()
    }

    /// The directory's inode, for example for its extended attributes.
    ///
    /// # Errors
    /// None at present.
    pub fn own_node(&self) -> Result<Node> {
        Ok(self.node.clone())
    }

    /// The inode at `path`; a final symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn node(&self, path: impl AsRef<Path>) -> Result<Node> {
        self.node_at(path, Last::NoFollow)
    }

    /// Opens a directory; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        Dir::new(self.volume(), self.resolve(path, Last::Follow)?)
    }

    /// Opens a regular file, for writing too if the volume is writable; symbolic links are followed.
    ///
    /// # Errors
    /// [`Reason::IsDir`]; [`Reason::Invalid`] for a device, fifo or socket; as [`Volume::open_dir`].
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        File::new(self.volume(), self.resolve(path, Last::Follow)?)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Reason::Invalid`] if it is not a symbolic link; as [`Volume::open_dir`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let inode = self.resolve(path, Last::NoFollow)?;
        Ok(path_from(self.node.fs().read_link(&inode)?))
    }

    /// Creates a regular file with mode 0o666, or truncates an existing one to zero length; symbolic links
    /// are followed. The process's umask is not applied; see [`Attributes::umask`].
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::IsDir`], [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Volume::open_dir`].
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.create_file_with(path, &Attributes::new())
    }

    /// As [`Dir::create_file`]; a new file gets these attributes. Those of an existing file do not change.
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
        self.open_or_create(path, attributes, true)
    }

    /// Opens a regular file, truncated if `truncate`, or creates it; symbolic links are followed.
    pub(crate) fn open_or_create(
        &self,
        path: impl AsRef<Path>,
        attributes: &Attributes,
        truncate: bool,
    ) -> Result<File> {
        let place = self.place(path, Last::Follow)?;
        let Some(inode) = &place.inode else {
            return self.create_file_at(&place, attributes);
        };
        let file = File::new(self.volume(), Arc::clone(inode))?;
        if truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Creates a regular file; the name must not exist, not even as a symbolic link.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Exists`], [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Volume::open_dir`].
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File> {
        self.create_new_with(path, &Attributes::new())
    }

    /// As [`Dir::create_new`], with these attributes.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// The same.
    pub fn create_new_with(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<File> {
        let place = self.place(path, Last::NoFollow)?;
        self.create_file_at(&place, attributes)
    }

    fn create_file_at(&self, place: &Place, attributes: &Attributes) -> Result<File> {
        let node = self.create_at(place, NewNode::File, 0o666, attributes)?;
        File::of(node, self.volume().mode())
    }

    /// Creates a directory with mode 0o777.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Exists`], [`Reason::TooManyLinks`], [`Reason::NoSpace`], [`Reason::ReadOnly`]; as
    /// [`Volume::open_dir`].
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        self.create_dir_with(path, &Attributes::new())
    }

    /// As [`Dir::create_dir`], with these attributes.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// The same.
    pub fn create_dir_with(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<Dir> {
        let place = self.place(path, Last::NoFollow)?;
        let node = self.create_at(&place, NewNode::Directory, 0o777, attributes)?;
        Ok(Dir { node })
    }

    /// Creates a symbolic link `link` to `target`: any text of at least 1 byte and less than a block.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Exists`], [`Reason::NotFound`] (empty target), [`Reason::NameTooLong`] (target too long),
    /// [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Volume::open_dir`].
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.symlink_with(target, link, &Attributes::new())
    }

    /// As [`Dir::symlink`], with these attributes.
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
        let place = self.place(link, Last::NoFollow)?;
        let target = target.as_ref().as_os_str().as_bytes();
        self.create_at(&place, NewNode::Symlink(target), 0o777, attributes)?;
        Ok(())
    }

    /// Creates a device (with its numbers), a fifo or a socket.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Invalid`] for other types and for missing or too large device numbers; as
    /// [`Dir::create_new`].
    pub fn make_node(
        &self,
        path: impl AsRef<Path>,
        kind: FileType,
        device: Option<DeviceNumber>,
        attributes: &Attributes,
    ) -> Result<()> {
        let kind = match (kind, device) {
            (FileType::Fifo, _) => NewNode::Fifo,
            (FileType::Socket, _) => NewNode::Socket,
            (FileType::CharDevice, Some(device)) => NewNode::CharDevice(device),
            (FileType::BlockDevice, Some(device)) => NewNode::BlockDevice(device),
            _ => {
                return Err(Reason::Invalid(
                    "a node is a fifo, a socket, or a device with its numbers",
                )
                .into());
            }
        };
        let place = self.place(path, Last::NoFollow)?;
        self.create_at(&place, kind, 0o666, attributes)?;
        Ok(())
    }

    fn create_at(
        &self,
        place: &Place,
        kind: NewNode<'_>,
        mode: u32,
        attributes: &Attributes,
    ) -> Result<Node> {
        let name = free_name(place)?;
        if place.slash && kind != NewNode::Directory {
            return Err(Reason::IsDir.into());
        }
        ops::create(&self.dir_of(place)?, name, kind, mode, attributes).into_result()
    }

    /// Creates the hard link `link` to a file. A final symbolic link is not followed, but linked itself.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Dir::link_inode`].
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.link_node(&self.node_at(original, Last::NoFollow)?, link)
    }

    /// Creates the hard link `link` to the file with inode number `ino`. The number may have been reused for
    /// another file. For a file that has a name or is open, use [`Dir::hard_link`] or [`Node::link`] instead.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Permission`] for a directory, [`Reason::Exists`], [`Reason::TooManyLinks`],
    /// [`Reason::NotFound`], [`Reason::NoSpace`], [`Reason::ReadOnly`].
    pub fn link_inode(&self, ino: u64, link: impl AsRef<Path>) -> Result<()> {
        self.link_node(&self.volume().node(ino)?, link)
    }

    fn link_node(&self, node: &Node, link: impl AsRef<Path>) -> Result<()> {
        let place = self.place(link, Last::NoFollow)?;
        ops::link(&self.dir_of(&place)?, node, free_name(&place)?).into_result()
    }

    /// Removes the name of anything but a directory. The file is freed when its last name is gone and it is
    /// no longer open.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::NotFound`], [`Reason::IsDir`], [`Reason::Permission`], [`Reason::ReadOnly`].
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let place = self.named(path)?;
        if place.slash {
            return Err(Reason::NotDir.into());
        }
        ops::unlink(&self.dir_of(&place)?, &place.name).into_result()
    }

    /// Removes an empty directory.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::NotFound`], [`Reason::NotDir`], [`Reason::NotEmpty`], [`Reason::Permission`],
    /// [`Reason::ReadOnly`], [`Reason::Busy`] for the root.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let place = self.named(path)?;
        ops::rmdir(&self.dir_of(&place)?, &place.name).into_result()
    }

    /// As [`Volume::rename`].
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// The same.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// As [`Volume::rename_with`].
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// The same.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (self.named(from)?, self.named(to)?);
        if (from.slash || to.slash) && from.inode.as_ref().is_some_and(|inode| !inode.is_dir()) {
            return Err(Reason::NotDir.into());
        }
        let (dir, new_dir) = (self.dir_of(&from)?, self.dir_of(&to)?);
        ops::rename((&dir, &from.name), (&new_dir, &to.name), mode).into_result()
    }

    /// A place whose last name can be removed.
    fn named(&self, path: impl AsRef<Path>) -> Result<Place> {
        let place = self.place(path, Last::NoFollow)?;
        if place.name.is_empty() {
            return Err(Reason::Busy("it is the root of the volume".into()).into());
        }
        Ok(place)
    }
}

/// The name of a place where something can be created.
fn free_name(place: &Place) -> Result<&[u8]> {
    match place.inode.is_some() || place.name.is_empty() {
        true => Err(Reason::Exists.into()),
        false => Ok(&place.name),
    }
}
