//! [`Dir`], an open directory, and the calls by name in it.
//!
//! Every path that a `Dir` takes may have several names; relative ones start here, absolute ones at the volume's root.

mod attributes;
mod entries;
mod tree;
mod walk;
mod whole;

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline_ext::{Inode, Last, NewInode, NewKind, Place, Reason, RenameMode};

pub use entries::{DirEntry, ReadDir};
pub(crate) use entries::{impossible_name, is_name};
pub use walk::{Walk, WalkEntry};

use crate::error::Result;
use crate::file::File;
use crate::metadata::{Attributes, DeviceNumber, FileType, Metadata};
use crate::node::Node;
use crate::volume::{Held, Volume, path_from};

/// An open directory. It stays open under any name, however it is renamed. Clones are handles on the same one.
#[derive(Clone)]
pub struct Dir {
    held: Arc<Held>,
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dir")
            .field("ino", &self.held.inode.ino.0)
            .finish_non_exhaustive()
    }
}

impl Dir {
    pub(crate) fn new(volume: &Volume, inode: Arc<Inode>) -> Result<Dir> {
        if !inode.is_dir() {
            return Err(Reason::NotDir.into());
        }
        Ok(Dir {
            held: Arc::new(Held::new(volume, inode)?),
        })
    }

    fn place(&self, path: impl AsRef<Path>, last: Last) -> Result<Place> {
        Ok(self.held.fs().place_from(
            &self.held.inode,
            path.as_ref().as_os_str().as_bytes(),
            last,
        )?)
    }

    fn resolve(&self, path: impl AsRef<Path>, last: Last) -> Result<Arc<Inode>> {
        self.place(path, last)?
            .inode
            .ok_or_else(|| Reason::NotFound.into())
    }

    /// The names in it, without `.` and `..`, read as they are asked for.
    ///
    /// # Errors
    /// None at first; each entry may bring one.
    pub fn entries(&self) -> Result<ReadDir> {
        Ok(ReadDir::new(Arc::clone(&self.held)))
    }

    /// Of the directory itself.
    ///
    /// # Errors
    /// Damage.
    pub fn own_metadata(&self) -> Result<Metadata> {
        Metadata::of(&self.held.volume, &self.held.inode)
    }

    /// Sets attributes of the directory itself.
    ///
    /// # Errors
    /// [`Reason::Permission`] for an immutable one, [`Reason::ReadOnly`]; the device's.
    pub fn set_own_attributes(&self, attributes: &Attributes) -> Result<()> {
        attributes.set(&self.held.volume, &self.held.inode)
    }

    /// Returns when the names in it survive a crash, as they are now (`fsync` of a directory). The name of a new file needs
    /// that not: [`Handle::sync`](crate::Handle::sync) of the file is enough.
    ///
    /// # Errors
    /// What the device says, again at every call until it can be done.
    pub fn sync(&self) -> Result<()> {
        Ok(self.held.fs().sync_file(&self.held.inode)?)
    }

    /// What a path stands for; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Metadata::of(&self.held.volume, &*self.resolve(path, Last::Follow)?)
    }

    /// As [`Dir::metadata`], of a symbolic link itself.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Metadata::of(&self.held.volume, &*self.resolve(path, Last::NoFollow)?)
    }

    /// Sets attributes; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Volume::set_attributes`].
    pub fn set_attributes(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<()> {
        attributes.set(&self.held.volume, &*self.resolve(path, Last::Follow)?)
    }

    /// As [`Dir::set_attributes`], of a symbolic link itself; its mode stays as it is.
    ///
    /// # Errors
    /// As [`Volume::set_attributes`].
    pub fn set_symlink_attributes(
        &self,
        path: impl AsRef<Path>,
        attributes: &Attributes,
    ) -> Result<()> {
        let inode = self.resolve(path, Last::NoFollow)?;
        let mut attributes = attributes.clone();
        if inode.is_symlink() {
            attributes.mode = None;
        }
        attributes.set(&self.held.volume, &inode)
    }

    /// The inode of the directory by itself: what has its extended attributes, for one.
    ///
    /// # Errors
    /// None so far.
    pub fn own_node(&self) -> Result<Node> {
        Ok(Node::held(Arc::clone(&self.held)))
    }

    /// The inode that a path stands for, by itself; of a symbolic link, the link.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn node(&self, path: impl AsRef<Path>) -> Result<Node> {
        Node::new(&self.held.volume, self.resolve(path, Last::NoFollow)?)
    }

    /// Opens a directory; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        Dir::new(&self.held.volume, self.resolve(path, Last::Follow)?)
    }

    /// Opens a regular file, for writing too where the volume is; symbolic links are followed.
    ///
    /// # Errors
    /// [`Reason::IsDir`]; [`Reason::Invalid`] for a device, fifo or socket; as [`Volume::open_dir`].
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        File::new(&self.held.volume, self.resolve(path, Last::Follow)?)
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// [`Reason::Invalid`] for anything else; as [`Volume::open_dir`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let inode = self.resolve(path, Last::NoFollow)?;
        Ok(path_from(self.held.fs().read_link(&inode)?))
    }

    /// Makes a regular file with mode 0o666, or empties the one that is there; symbolic links are followed. The process's umask
    /// is not applied: [`Attributes::umask`].
    ///
    /// # Errors
    /// [`Reason::IsDir`], [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Volume::open_dir`].
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.create_file_with(path, &Attributes::new())
    }

    /// As [`Dir::create_file`], a new file with these attributes. Those of a file that is there stay as they are.
    ///
    /// # Errors
    /// As there.
    pub fn create_file_with(
        &self,
        path: impl AsRef<Path>,
        attributes: &Attributes,
    ) -> Result<File> {
        self.open_or_create(path, attributes, true)
    }

    /// Opens a regular file, emptied where `truncate`, or makes it; symbolic links are followed.
    pub(crate) fn open_or_create(
        &self,
        path: impl AsRef<Path>,
        attributes: &Attributes,
        truncate: bool,
    ) -> Result<File> {
        let place = self.place(path, Last::Follow)?;
        let Some(inode) = &place.inode else {
            let inode = self.create_at(&place, NewKind::File, 0o666, attributes)?;
            return File::new(&self.held.volume, inode);
        };
        let file = File::new(&self.held.volume, Arc::clone(inode))?;
        if truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Makes a regular file where there is nothing yet, not even a symbolic link.
    ///
    /// # Errors
    /// [`Reason::Exists`], [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Volume::open_dir`].
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File> {
        self.create_new_with(path, &Attributes::new())
    }

    /// As [`Dir::create_new`], with these attributes.
    ///
    /// # Errors
    /// As there.
    pub fn create_new_with(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<File> {
        let place = self.place(path, Last::NoFollow)?;
        File::new(
            &self.held.volume,
            self.create_at(&place, NewKind::File, 0o666, attributes)?,
        )
    }

    /// Makes a directory with mode 0o777.
    ///
    /// # Errors
    /// [`Reason::Exists`], [`Reason::TooManyLinks`], [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Volume::open_dir`].
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        self.create_dir_with(path, &Attributes::new())
    }

    /// As [`Dir::create_dir`], with these attributes.
    ///
    /// # Errors
    /// As there.
    pub fn create_dir_with(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<Dir> {
        let place = self.place(path, Last::NoFollow)?;
        Dir::new(
            &self.held.volume,
            self.create_at(&place, NewKind::Dir, 0o777, attributes)?,
        )
    }

    /// Makes a symbolic link at `link` that points to `target`: any text of 1 byte to less than a block.
    ///
    /// # Errors
    /// [`Reason::Exists`], [`Reason::NotFound`] (an empty target), [`Reason::NameTooLong`] (too long a target),
    /// [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Volume::open_dir`].
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.symlink_with(target, link, &Attributes::new())
    }

    /// As [`Dir::symlink`], with these attributes.
    ///
    /// # Errors
    /// As there.
    pub fn symlink_with(
        &self,
        target: impl AsRef<Path>,
        link: impl AsRef<Path>,
        attributes: &Attributes,
    ) -> Result<()> {
        let place = self.place(link, Last::NoFollow)?;
        let target = target.as_ref().as_os_str().as_bytes();
        self.create_at(&place, NewKind::Symlink(target), 0o777, attributes)?;
        Ok(())
    }

    /// Makes a device (with its numbers), a fifo or a socket.
    ///
    /// # Errors
    /// [`Reason::Invalid`] for other kinds and for numbers that are missing or too large; as [`Dir::create_new`].
    pub fn make_node(
        &self,
        path: impl AsRef<Path>,
        kind: FileType,
        device: Option<DeviceNumber>,
        attributes: &Attributes,
    ) -> Result<()> {
        let kind = match (kind, device) {
            (FileType::Fifo, _) => NewKind::Fifo,
            (FileType::Socket, _) => NewKind::Socket,
            (FileType::CharDevice, Some(DeviceNumber { major, minor })) => {
                NewKind::CharDevice { major, minor }
            }
            (FileType::BlockDevice, Some(DeviceNumber { major, minor })) => {
                NewKind::BlockDevice { major, minor }
            }
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
        kind: NewKind<'_>,
        mode: u32,
        attributes: &Attributes,
    ) -> Result<Arc<Inode>> {
        if place.inode.is_some() || place.name.is_empty() {
            return Err(Reason::Exists.into());
        }
        if place.slash && kind != NewKind::Dir {
            return Err(Reason::IsDir.into());
        }
        let new = NewInode {
            permissions: attributes.mode.unwrap_or(mode) as u16 & 0o7777,
            uid: attributes
                .uid
                .unwrap_or_else(|| rustix::process::geteuid().as_raw()),
            gid: attributes
                .gid
                .unwrap_or_else(|| rustix::process::getegid().as_raw()),
            umask: attributes.umask as u16,
        };
        let inode = self.held.fs().create(&place.dir, &place.name, kind, new)?;
        let times = Attributes {
            accessed: attributes.accessed,
            modified: attributes.modified,
            ..Attributes::default()
        };
        if !times.is_empty() {
            times.set(&self.held.volume, &inode)?;
        }
        Ok(inode)
    }

    /// Gives a file (a symbolic link itself) the additional name `link`.
    ///
    /// # Errors
    /// As [`Dir::link_inode`].
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        // Held from here on: were it known by its number only, that could be another file's when it gets the name.
        let inode = self.resolve(original, Last::NoFollow)?;
        self.link_held(&inode, link)
    }

    /// Gives a file, by its inode number, the additional name `link`. A number may be another file's by now: where the file has a
    /// name or is open, [`Dir::hard_link`] and [`Node::link`] say which one is meant.
    ///
    /// # Errors
    /// [`Reason::Permission`] for a directory, [`Reason::Exists`], [`Reason::TooManyLinks`], [`Reason::NotFound`],
    /// [`Reason::NoSpace`], [`Reason::ReadOnly`].
    pub fn link_inode(&self, ino: u64, link: impl AsRef<Path>) -> Result<()> {
        self.link_held(&self.held.volume.inode(ino)?, link)
    }

    fn link_held(&self, inode: &Arc<Inode>, link: impl AsRef<Path>) -> Result<()> {
        let place = self.place(link, Last::NoFollow)?;
        if place.inode.is_some() || place.name.is_empty() {
            return Err(Reason::Exists.into());
        }
        Ok(self.held.fs().link(inode, &place.dir, &place.name)?)
    }

    /// Takes away a name of anything but a directory. The file goes with its last name, once nobody has it open.
    ///
    /// # Errors
    /// [`Reason::NotFound`], [`Reason::IsDir`], [`Reason::Permission`], [`Reason::ReadOnly`].
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let place = self.named(path)?;
        if place.slash {
            return Err(Reason::NotDir.into());
        }
        Ok(self.held.fs().unlink(&place.dir, &place.name)?)
    }

    /// Takes away an empty directory.
    ///
    /// # Errors
    /// [`Reason::NotFound`], [`Reason::NotDir`], [`Reason::NotEmpty`], [`Reason::Permission`], [`Reason::ReadOnly`],
    /// [`Reason::Busy`] for the root.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let place = self.named(path)?;
        Ok(self.held.fs().rmdir(&place.dir, &place.name)?)
    }

    /// As [`Volume::rename`].
    ///
    /// # Errors
    /// As there.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// As [`Volume::rename_with`].
    ///
    /// # Errors
    /// As there.
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
        Ok(self
            .held
            .fs()
            .rename(&from.dir, &from.name, &to.dir, &to.name, mode)?)
    }

    /// A place whose last name can be taken away.
    fn named(&self, path: impl AsRef<Path>) -> Result<Place> {
        let place = self.place(path, Last::NoFollow)?;
        if place.name.is_empty() {
            return Err(Reason::Busy("it is the root of the volume".into()).into());
        }
        Ok(place)
    }
}
