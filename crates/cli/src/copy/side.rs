//! The interface of both sides of a copy: folders hold names, contents hold bytes.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use throughline::{DeviceNumber, FileType};
use throughline_forms::owner::Owner;

use super::extended::{Extended, Holder, Refused};
use super::host_folder::HostFile;
use crate::problem::Result;

/// Identifies a file on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    /// Device and inode.
    Host(u64, u64),
    /// The index of the image in this run, and the inode.
    Image(usize, u64),
}

/// Metadata of a file.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub(crate) id: Id,
    pub(crate) kind: FileType,
    pub(crate) device: Option<DeviceNumber>,
    /// The twelve permission bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) links: u64,
    pub(crate) len_bytes: u64,
    /// Allocated space.
    pub(crate) allocated_bytes: u64,
    pub(crate) accessed: SystemTime,
    pub(crate) modified: SystemTime,
}

impl Meta {
    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }
}

/// Attributes to set. The owner is set first, because changing it clears other attributes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub(crate) owner: Option<Owner>,
    pub(crate) mode: Option<u32>,
    /// The times of the last access and the last modification.
    pub(crate) times: Option<(SystemTime, SystemTime)>,
    /// Extended attributes and ACLs.
    pub(crate) extended: Extended,
}

impl Change {
    pub(crate) fn is_empty(&self) -> bool {
        let plain = self.owner.is_none() && self.mode.is_none() && self.times.is_none();
        plain && self.extended.is_empty()
    }
}

/// A file that was created, so that further links to it can be made.
pub(crate) enum Landed {
    /// On the host.
    Host(HostFile),
    /// Its inode in the target's image.
    Image(u64),
}

/// How to open a file for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Create {
    /// It must not exist.
    New,
    /// It is this regular file, and is truncated. A symbolic link is not followed.
    Existing(Id),
    /// It exists. A symbolic link is followed. A file that cannot be truncated, such as a device or a pipe,
    /// is written as it is.
    Through,
}

/// A directory on one side. Names are single components.
///
/// Others may rename and replace files of the host during the copy. `known` is what [`Folder::meta`] returned
/// for the name; it is an error if the name leads to another file by now.
pub(crate) trait Folder {
    /// Its names without `.` and `..`, in no particular order.
    fn names(&self) -> Result<Box<dyn Iterator<Item = Result<OsString>> + '_>>;
    /// The metadata of the directory itself.
    fn own(&self) -> Result<Meta>;
    /// The metadata of a name.
    fn meta(&self, name: &OsStr, follow: bool) -> Result<Meta>;
    /// Whether only this copy adds names to it, and names that differ in any byte are different names.
    fn adds_names_alone(&self) -> bool {
        false
    }
    /// Opens a subdirectory.
    fn folder(&self, name: &OsStr, follow: bool) -> Result<Box<dyn Folder>>;
    /// Opens a file for reading.
    fn open(&self, name: &OsStr, follow: bool, known: &Meta) -> Result<Box<dyn Content>>;
    /// The target of a symbolic link.
    fn link_target(&self, name: &OsStr, known: &Meta) -> Result<PathBuf>;
    /// The extended attributes of a name; a symbolic link is not followed.
    fn holder(&self, name: &OsStr, known: &Meta) -> Result<Holder<'_>>;
    /// The extended attributes of the directory itself.
    fn own_holder(&self) -> Result<Holder<'_>>;

    /// Opens a file for writing.
    fn create(&self, name: &OsStr, mode: u32, how: Create) -> Result<Box<dyn Content>>;
    /// Whether this directory is as one that was just created: without names.
    fn is_fresh(&self) -> Result<bool> {
        Ok(true)
    }
    /// Creates a directory.
    fn make_folder(&self, name: &OsStr, mode: u32) -> Result<()>;
    /// Gives the owner of a directory all permissions.
    fn let_owner_in(&self, name: &OsStr) -> Result<()>;
    /// Creates a symbolic link.
    fn make_symlink(&self, name: &OsStr, target: &Path) -> Result<()>;
    /// Creates a device, a FIFO or a socket.
    fn make_node(
        &self,
        name: &OsStr,
        kind: FileType,
        device: Option<DeviceNumber>,
        mode: u32,
    ) -> Result<()>;
    /// Creates another link to a file.
    fn make_link(&self, name: &OsStr, first: &Landed) -> Result<()>;
    /// The file that was just created under that name.
    fn landed(&self, name: &OsStr, id: Id) -> Landed;
    /// Removes a name that is not a directory.
    fn remove(&self, name: &OsStr) -> Result<()>;
    /// Sets attributes of a name that was just created, of this type and for this device. A symbolic link is
    /// not followed. Returns the extended attributes that could not be set.
    fn set(
        &self,
        name: &OsStr,
        made: (FileType, Option<DeviceNumber>),
        change: &Change,
    ) -> Result<Vec<Refused>>;
    /// As [`Folder::set`], for the directory itself.
    fn set_own(&self, change: &Change) -> Result<Vec<Refused>>;
}

/// The bytes of one file.
pub(crate) trait Content: Send + Sync {
    /// The file in the image; `None` on the host.
    fn image_file(&self) -> Option<&throughline::File> {
        None
    }
    /// The metadata of the open file.
    fn meta(&self) -> Result<Meta>;
    /// Whether it is a stream: reads and writes have no offset.
    fn is_stream(&self) -> bool;
    /// Whether bytes that a copy does not write read as zeroes, and the length can be set. Not so for a
    /// stream, nor for a block device, which keeps its old bytes.
    fn has_holes(&self) -> bool;
    /// The descriptor of a stream, to poll.
    fn stream(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Reads data from `offset_bytes` until `buffer` is full; a short read means the end. A stream returns
    /// what is available; an empty read means the end.
    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize>;
    /// Writes all of `bytes`.
    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<()>;
    /// The next range at or after `offset_bytes` that is not a hole; `None` if only a hole follows.
    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>>;
    /// Sets its length.
    fn set_len(&self, len_bytes: u64) -> Result<()>;
    /// Closes a target. Returns errors that a file system reports only then.
    fn close(self: Box<Self>) -> Result<()>;
    /// Its extended attributes.
    fn holder(&self) -> Holder<'_>;
    /// Sets attributes. Returns the extended attributes that could not be set.
    fn set(&self, change: &Change) -> Result<Vec<Refused>>;
}
