//! [`Node`]: a held inode, for servers whose requests name inodes, not paths.
//!
//! Invariants:
//! - A node keeps its inode alive, whatever happens to its names.
//! - Names are single components: bytes without `/` and NUL. `.` and `..` can be looked up, but nothing else.

mod flags;
mod tmpfile;

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use throughline_ext::{Inode, InodeNumber, NewKind, Reason, RenameMode};

use crate::dir::{Dir, impossible_name, is_name};
use crate::error::Result;
use crate::file::File;
use crate::metadata::{Attributes, DeviceNumber, FileType, Metadata};
use crate::mode::FileOptions;
use crate::ops;
use crate::source::Source;
use crate::volume::{Held, Volume};
use crate::xattrs::Xattrs;

/// A held inode of a volume. Clones share the same one.
#[derive(Clone)]
pub struct Node {
    held: Arc<Held>,
}

/// The type of inode that [`Node::create`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// An empty regular file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link to this target: at least 1 byte, less than a block, no NUL.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
}

impl<'a> From<NewNode<'a>> for NewKind<'a> {
    fn from(kind: NewNode<'a>) -> NewKind<'a> {
        match kind {
            NewNode::File => NewKind::File,
            NewNode::Directory => NewKind::Dir,
            NewNode::Symlink(target) => NewKind::Symlink(target),
            NewNode::Fifo => NewKind::Fifo,
            NewNode::Socket => NewKind::Socket,
            NewNode::CharDevice(DeviceNumber { major, minor }) => {
                NewKind::CharDevice { major, minor }
            }
            NewNode::BlockDevice(DeviceNumber { major, minor }) => {
                NewKind::BlockDevice { major, minor }
            }
        }
    }
}

/// An entry of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The number of its inode.
    pub ino: u64,
    /// The type stored in the directory; `None` if the format does not store it there.
    pub file_type: Option<FileType>,
    /// The name; may be `.` or `..`.
    pub name: Vec<u8>,
    /// The position after this entry, in less than 63 bits. It stays valid when names are created or removed.
    pub next: u64,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("ino", &self.ino())
            .finish_non_exhaustive()
    }
}

impl Node {
    pub(crate) fn new(volume: &Volume, inode: Arc<Inode>) -> Result<Node> {
        Ok(Node {
            held: Arc::new(Held::new(volume, inode)?),
        })
    }

    /// For an inode that is already open.
    pub(crate) fn opened(volume: &Volume, inode: Arc<Inode>) -> Node {
        Node {
            held: Arc::new(Held::opened(volume, inode)),
        }
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// The file for I/O.
    pub(crate) fn source(&self) -> &impl Source {
        &*self.held
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.held.inode
    }

    pub(crate) fn fs(&self) -> &throughline_ext::Fs {
        self.held.fs()
    }

    /// The volume that contains the inode.
    pub fn volume(&self) -> &Volume {
        &self.held.volume
    }

    /// The inode's number.
    pub fn ino(&self) -> u64 {
        self.inode().ino.0.into()
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.inode().is_dir()
    }

    /// The inode's metadata.
    ///
    /// # Errors
    /// Damage.
    pub fn metadata(&self) -> Result<Metadata> {
        Metadata::of(self.fs(), self.inode())
    }

    /// The number of its names, as in its [metadata](Self::metadata).
    pub fn nlink(&self) -> u32 {
        self.inode().links_count().into()
    }

    /// Its type alone.
    ///
    /// # Errors
    /// Damage: an invalid type.
    pub(crate) fn file_type(&self) -> Result<FileType> {
        match self.inode().file_type() {
            Some(known) => Ok(known.into()),
            None => Ok(self.metadata()?.file_type()),
        }
    }

    /// Its extended attributes and access control lists.
    pub fn xattrs(&self) -> Xattrs {
        Xattrs::of(self.clone())
    }

    /// Sets attributes.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Permission`](crate::Reason::Permission) for an immutable inode, and for an append-only one
    /// unless both times are set to the current time; [`Reason::ReadOnly`](crate::Reason::ReadOnly); device
    /// errors.
    pub fn set_attributes(&self, attributes: &Attributes) -> Result<()> {
        ops::set_attributes(self, attributes).into_result()
    }

    /// Maps a block of this file to a block of the volume (`FIBMAP`); `None` for a hole. Both are in units of
    /// the volume's block size.
    ///
    /// # Errors
    /// [`Reason::IsDir`](crate::Reason::IsDir), [`Reason::Invalid`](crate::Reason::Invalid) if it is not a
    /// regular file; damage; device errors.
    pub fn block_at(&self, block: u64) -> Result<Option<u64>> {
        let found = self.fs().block_at(self.inode(), block)?;
        Ok(found.map(|found| found.0))
    }

    /// Looks up a name in this directory.
    ///
    /// # Errors
    /// [`Reason::NotFound`](crate::Reason::NotFound), [`Reason::NotDir`](crate::Reason::NotDir),
    /// [`Reason::NameTooLong`](crate::Reason::NameTooLong); damage; device errors.
    pub fn lookup(&self, name: &[u8]) -> Result<Node> {
        let inode = self.fs().lookup_open(self.inode(), name)?;
        Ok(Node::opened(self.volume(), inode))
    }

    /// A batch of this directory's names from position `from` (0: the start); empty at the end. Damage is
    /// skipped and [counted](crate::VolumeStatus::damaged_places).
    ///
    /// # Errors
    /// Device errors; damage that occurs during the listing.
    pub fn list(&self, mut from: u64) -> Result<Vec<Listed>> {
        loop {
            let names = self.fs().list_dir_around_damage(self.inode(), from)?.names;
            let Some(last) = names.last() else {
                return Ok(Vec::new());
            };
            from = last.next;
            let listed: Vec<_> = names
                .into_iter()
                .filter(|entry| self.can_be_listed(&entry.name))
                .map(|entry| Listed {
                    ino: entry.ino.0.into(),
                    file_type: entry.file_type.map(FileType::from),
                    name: entry.name,
                    next: entry.next,
                })
                .collect();
            if !listed.is_empty() {
                return Ok(listed);
            }
        }
    }

    /// Counts an invalid name as damage.
    fn can_be_listed(&self, name: &[u8]) -> bool {
        let possible = matches!(name, b"." | b"..") || is_name(name);
        if !possible {
            self.fs().count_damage(&impossible_name(self.inode(), name));
        }
        possible
    }

    /// The node of a name that was just listed. On a read-only volume the listed inode number is used,
    /// without another look-up by name.
    ///
    /// # Errors
    /// As [`Node::lookup`].
    pub fn lookup_listed(&self, name: &Listed) -> Result<Node> {
        if !self.fs().is_read_only() {
            return self.lookup(&name.name);
        }
        let ino = u32::try_from(name.ino).map_err(|_| crate::Error::from(Reason::NotFound))?;
        let inode = self.fs().inode_listed(self.inode(), InodeNumber(ino))?;
        Node::new(&self.held.volume, inode)
    }

    /// Creates an inode with its first name in this directory. Defaults of `attributes`: mode 0, the
    /// effective user and group of this process, and the current time.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Exists`](crate::Reason::Exists), [`Reason::NotFound`](crate::Reason::NotFound) (the
    /// directory was removed), [`Reason::NoSpace`](crate::Reason::NoSpace) and the others of
    /// [`Dir::make_node`](crate::Dir::make_node).
    pub fn create(&self, name: &[u8], kind: NewNode<'_>, attributes: &Attributes) -> Result<Node> {
        ops::create(self, name, kind, 0, attributes).into_result()
    }

    /// Creates the hard link `name` in this directory to `node`, which must not be a directory.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Dir::link_node`](crate::Dir::link_node); [`Reason::CrossDevice`](crate::Reason::CrossDevice)
    /// for a node of another volume.
    pub fn link(&self, node: &Node, name: &[u8]) -> Result<()> {
        ops::link(self, node, name).into_result()
    }

    /// Removes the name of anything but a directory.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Dir::remove_file`](crate::Dir::remove_file).
    pub fn unlink(&self, name: &[u8]) -> Result<()> {
        ops::unlink(self, name).into_result()
    }

    /// Removes an empty directory.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Dir::remove_dir`](crate::Dir::remove_dir).
    pub fn rmdir(&self, name: &[u8]) -> Result<()> {
        ops::rmdir(self, name).into_result()
    }

    /// Renames `name` of this directory to `new_name` of `new_dir`, atomically.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Dir::rename`](crate::Dir::rename); [`Reason::CrossDevice`](crate::Reason::CrossDevice) for a
    /// directory of another volume.
    pub fn rename(
        &self,
        name: &[u8],
        new_dir: &Node,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        ops::rename((self, name), (new_dir, new_name), mode).into_result()
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Reason::Invalid`](crate::Reason::Invalid) if it is not a symbolic link; damage; device errors.
    pub fn read_link(&self) -> Result<PathBuf> {
        Ok(OsString::from_vec(self.fs().read_link(self.inode())?).into())
    }

    /// Opens the inode as a regular file. Options for creating or truncating it are ignored.
    ///
    /// # Errors
    /// [`Reason::IsDir`](crate::Reason::IsDir), [`Reason::Invalid`](crate::Reason::Invalid) if it is not a
    /// regular file.
    pub fn open(&self, options: &FileOptions) -> Result<File> {
        File::of(self.clone(), options.mode())
    }

    /// Opens the inode as a regular file, as [`Dir::open_file`] does.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub fn open_file(&self) -> Result<File> {
        File::of(self.clone(), self.volume().mounted().mode())
    }

    /// Opens the inode as a directory.
    ///
    /// # Errors
    /// [`Reason::NotDir`](crate::Reason::NotDir).
    pub fn open_dir(&self) -> Result<Dir> {
        Dir::of(self.clone())
    }

    /// Returns when the current state survives a crash: a file with its data, a directory with its names
    /// (`fsync`). With `data_only`, as `fdatasync`.
    ///
    /// # Errors
    /// The device's error, on every call until the sync succeeds.
    pub fn sync(&self, data_only: bool) -> Result<()> {
        if data_only {
            Ok(self.fs().sync_data(self.inode())?)
        } else {
            Ok(self.fs().sync_file(self.inode())?)
        }
    }
}
