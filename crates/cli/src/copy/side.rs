//! What copying needs of a side: folders with names in them, contents with bytes in them.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use throughline::{DeviceNumber, FileType};

use super::extended::{Extended, Holder, Refused};
use crate::owner::Owner;
use crate::problem::Result;

/// Which file it is, on whatever side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    /// Device and inode.
    Host(u64, u64),
    /// The image's number in this run, and the inode.
    Image(usize, u64),
}

/// What a side says about a file.
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
    /// Space that it takes.
    pub(crate) allocated_bytes: u64,
    pub(crate) accessed: SystemTime,
    pub(crate) modified: SystemTime,
}

impl Meta {
    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }
}

/// Attributes to set; all given are set, in an order that keeps them: the owner before what a change of it takes away.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub(crate) owner: Option<Owner>,
    pub(crate) mode: Option<u32>,
    /// Of the last access and the last modification.
    pub(crate) times: Option<(SystemTime, SystemTime)>,
    /// Extended attributes and lists of access rights.
    pub(crate) extended: Extended,
}

impl Change {
    pub(crate) fn is_empty(&self) -> bool {
        let plain = self.owner.is_none() && self.mode.is_none() && self.times.is_none();
        plain && self.extended.is_empty()
    }
}

/// A file that was made, so that another name can be given to it.
#[derive(Clone, Debug)]
pub(crate) enum Landed {
    /// Its path on the host.
    Host(PathBuf),
    /// Its inode in the target's image.
    Image(u64),
}

/// How a file is opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Create {
    /// It must not exist.
    New,
    /// It exists and is emptied; a symbolic link is not followed.
    Existing,
    /// It exists; a symbolic link is followed, and what cannot be emptied (a device, a pipe) is written to.
    Through,
}

/// A directory of one side. Names are single names.
pub(crate) trait Folder {
    /// The names in it, without `.` and `..`, in no particular order.
    fn names(&self) -> Result<Box<dyn Iterator<Item = Result<OsString>> + '_>>;
    /// Itself.
    fn own(&self) -> Result<Meta>;
    /// What a name stands for.
    fn meta(&self, name: &OsStr, follow: bool) -> Result<Meta>;
    /// Opens a directory in it.
    fn folder(&self, name: &OsStr, follow: bool) -> Result<Box<dyn Folder>>;
    /// Opens for reading.
    fn open(&self, name: &OsStr, follow: bool) -> Result<Box<dyn Content>>;
    /// Where a symbolic link points.
    fn link_target(&self, name: &OsStr) -> Result<PathBuf>;
    /// The extended attributes of a name (a symbolic link is not followed).
    fn holder(&self, name: &OsStr) -> Result<Holder<'_>>;
    /// Those of the directory itself.
    fn own_holder(&self) -> Result<Holder<'_>>;

    /// Opens for writing.
    fn create(&self, name: &OsStr, mode: u32, how: Create) -> Result<Box<dyn Content>>;
    /// Makes a directory.
    fn make_folder(&self, name: &OsStr, mode: u32) -> Result<()>;
    /// Makes a symbolic link.
    fn make_symlink(&self, name: &OsStr, target: &Path) -> Result<()>;
    /// Makes a device, a fifo or a socket.
    fn make_node(
        &self,
        name: &OsStr,
        kind: FileType,
        device: Option<DeviceNumber>,
        mode: u32,
    ) -> Result<()>;
    /// Gives a file that was made another name.
    fn make_link(&self, name: &OsStr, first: &Landed) -> Result<()>;
    /// The file just made under that name.
    fn landed(&self, name: &OsStr) -> Result<Landed>;
    /// Removes a name that is not a directory.
    fn remove(&self, name: &OsStr) -> Result<()>;
    /// Sets attributes of a name (a symbolic link is not followed); those extended ones that could not be set.
    fn set(&self, name: &OsStr, change: &Change) -> Result<Vec<Refused>>;
    /// Sets attributes of the directory itself, as [`Folder::set`].
    fn set_own(&self, change: &Change) -> Result<Vec<Refused>>;
}

/// The bytes of one file.
pub(crate) trait Content: Send + Sync {
    /// The file of an image that it is, if it is one.
    fn image_file(&self) -> Option<&throughline::File> {
        None
    }
    /// Of the open file.
    fn meta(&self) -> Result<Meta>;
    /// It has no offsets: reads and writes go on where the last ended.
    fn is_stream(&self) -> bool;
    /// A stream's descriptor, to wait for.
    fn stream(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Fills `buffer` from `offset_bytes` as far as there is data; fewer bytes only at the end. Of a stream, what comes
    /// first, and nothing only at the end.
    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize>;
    /// Writes all of `bytes`.
    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<()>;
    /// The next range at or behind `offset_bytes` that is no hole; `None` when there is none up to the end.
    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>>;
    /// Makes it this long.
    fn set_len(&self, len_bytes: u64) -> Result<()>;
    /// Its extended attributes.
    fn holder(&self) -> Holder<'_>;
    /// Sets attributes; those extended ones that could not be set.
    fn set(&self, change: &Change) -> Result<Vec<Refused>>;
}
