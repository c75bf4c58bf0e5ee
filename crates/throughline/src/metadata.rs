//! Metadata of an inode: [`Metadata`], [`FileType`]; and what can be set: [`Attributes`].

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use throughline_ext::{FileType as ExtType, Fs, Inode, SetTime};

use crate::error::Result;
use crate::node::Node;
use crate::time::{system_time, timestamp};

/// The type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl FileType {
    /// Whether it is a regular file.
    pub fn is_file(self) -> bool {
        self == FileType::File
    }

    /// Whether it is a directory.
    pub fn is_dir(self) -> bool {
        self == FileType::Directory
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(self) -> bool {
        self == FileType::Symlink
    }

    /// Whether it is a character or block device.
    pub fn is_device(self) -> bool {
        matches!(self, FileType::CharDevice | FileType::BlockDevice)
    }

    /// The type's bits of `st_mode` (`S_IFMT`), as in inode(7).
    pub fn mode_bits(self) -> u32 {
        match self {
            FileType::Fifo => 0o010_000,
            FileType::CharDevice => 0o020_000,
            FileType::Directory => 0o040_000,
            FileType::BlockDevice => 0o060_000,
            FileType::File => 0o100_000,
            FileType::Symlink => 0o120_000,
            FileType::Socket => 0o140_000,
        }
    }
}

#[doc(hidden)]
impl From<ExtType> for FileType {
    fn from(kind: ExtType) -> FileType {
        match kind {
            ExtType::Regular => FileType::File,
            ExtType::Directory => FileType::Directory,
            ExtType::Symlink => FileType::Symlink,
            ExtType::Fifo => FileType::Fifo,
            ExtType::Socket => FileType::Socket,
            ExtType::CharDevice => FileType::CharDevice,
            ExtType::BlockDevice => FileType::BlockDevice,
        }
    }
}

/// The numbers of a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// The driver: 0 to 4095.
    pub major: u32,
    /// The device of that driver: 0 to 1048575.
    pub minor: u32,
}

/// The metadata of an inode at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub(crate) ino: u64,
    pub(crate) file_type: FileType,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) links: u32,
    pub(crate) len_bytes: u64,
    pub(crate) blocks_512: u64,
    pub(crate) is_stable: bool,
    pub(crate) device: Option<DeviceNumber>,
    pub(crate) flags: u32,
    pub(crate) generation: u32,
    pub(crate) accessed: SystemTime,
    pub(crate) modified: SystemTime,
    pub(crate) changed: SystemTime,
    pub(crate) created: Option<SystemTime>,
}

impl Metadata {
    pub(crate) fn of(fs: &Fs, inode: &Inode) -> Result<Metadata> {
        let meta = fs.metadata(inode)?;
        Ok(Metadata {
            ino: meta.ino.0.into(),
            file_type: meta.file_type.into(),
            mode: meta.permissions.into(),
            uid: meta.uid,
            gid: meta.gid,
            links: meta.links.into(),
            len_bytes: meta.size_bytes,
            blocks_512: meta.blocks_512,
            is_stable: meta.is_stable,
            device: meta
                .device
                .map(|(major, minor)| DeviceNumber { major, minor }),
            flags: meta.flags.bits(),
            generation: meta.generation,
            accessed: system_time(meta.accessed),
            modified: system_time(meta.modified),
            changed: system_time(meta.changed),
            created: meta.created.map(system_time),
        })
    }

    /// The inode's number.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// The type of the inode.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type.is_file()
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type.is_dir()
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type.is_symlink()
    }

    /// The twelve permission bits.
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// The owner.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The group.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The permissions: [`Metadata::mode`] in the form of `std::fs`.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.mode())
    }

    /// Number of hard links; 1 for a directory with more links than the format can count.
    pub fn nlink(&self) -> u32 {
        self.links
    }

    /// Size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "as std::fs::Metadata")]
    pub fn len(&self) -> u64 {
        self.len_bytes
    }

    /// Allocated space in units of 512 bytes, as in `stat`. Includes data that is only in memory so far.
    pub fn blocks_512(&self) -> u64 {
        self.blocks_512
    }

    /// Whether the values hold until the inode is read or changed. While it has data that is only in memory,
    /// write-back may allocate mapping blocks, and [`blocks_512`](Metadata::blocks_512) grows on its own.
    pub fn is_stable(&self) -> bool {
        self.is_stable
    }

    /// The numbers of a device node; `None` for anything else.
    pub fn device(&self) -> Option<DeviceNumber> {
        self.device
    }

    /// The inode's flags (`EXT4_…_FL`) as stored.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Distinguishes the inode from earlier ones with the same number.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Last read, if access times are kept.
    pub fn accessed(&self) -> SystemTime {
        self.accessed
    }

    /// Last change of the contents.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// Last change of contents or attributes.
    pub fn changed(&self) -> SystemTime {
        self.changed
    }

    /// Creation time; `None` if the inode is too small to store one.
    pub fn created(&self) -> Option<SystemTime> {
        self.created
    }
}

/// Attributes to set. An attribute that is not given stays unchanged, or takes its default on a new file.
///
/// Defaults of a new file: the mode of the call that creates it, the effective user and group of this
/// process, and the current time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) accessed: Option<SetTime>,
    pub(crate) modified: Option<SetTime>,
    pub(crate) umask: u32,
    pub(crate) drop_privileges: bool,
    pub(crate) drop_setgid: bool,
}

impl Attributes {
    /// No attributes.
    pub fn new() -> Attributes {
        Attributes::default()
    }

    /// The twelve permission bits; others are ignored.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode & 0o7777);
        self
    }

    /// The owner.
    #[must_use]
    pub fn uid(mut self, uid: u32) -> Self {
        self.uid = Some(uid);
        self
    }

    /// The group.
    #[must_use]
    pub fn gid(mut self, gid: u32) -> Self {
        self.gid = Some(gid);
        self
    }

    /// Time of the last read. Times outside the format's range are clamped.
    #[must_use]
    pub fn accessed(mut self, time: SystemTime) -> Self {
        self.accessed = Some(SetTime::At(timestamp(time)));
        self
    }

    /// Sets the time of the last read to the current time of the volume's clock. An append-only inode accepts
    /// this together with [`Attributes::modified_now`], but no explicit time.
    #[must_use]
    pub fn accessed_now(mut self) -> Self {
        self.accessed = Some(SetTime::Now);
        self
    }

    /// Time of the last change of the contents, clamped as in [`Attributes::accessed`].
    #[must_use]
    pub fn modified(mut self, time: SystemTime) -> Self {
        self.modified = Some(SetTime::At(timestamp(time)));
        self
    }

    /// Sets the time of the last change of the contents to the current time, as in
    /// [`Attributes::accessed_now`].
    #[must_use]
    pub fn modified_now(mut self) -> Self {
        self.modified = Some(SetTime::Now);
        self
    }

    /// Clears a file's setuid bit, and its setgid bit if the file is group-executable: for a caller without
    /// the right to keep them. Setting an owner or group does this anyway; setting a mode overrides it.
    #[must_use]
    pub fn drop_privileges(mut self) -> Self {
        self.drop_privileges = true;
        self
    }

    /// If setuid is cleared ([`Attributes::drop_privileges`], or a new owner or group), also clears setgid on
    /// a file that is not group-executable. For a caller who is not in the file's group.
    #[must_use]
    pub fn drop_setgid(mut self) -> Self {
        self.drop_setgid = true;
        self
    }

    /// Permission bits to remove from the mode of a new file: the umask of the creating process. If the
    /// directory has a default ACL, that is used instead of the mask. The default is 0. Only creation uses
    /// it.
    #[must_use]
    pub fn umask(mut self, umask: u32) -> Self {
        self.umask = umask & 0o777;
        self
    }

    /// The times alone.
    pub(crate) fn times(&self) -> Attributes {
        Attributes {
            accessed: self.accessed,
            modified: self.modified,
            ..Attributes::default()
        }
    }

    pub(crate) fn set(&self, node: &Node) -> Result<()> {
        let set = throughline_ext::Attributes {
            permissions: self.mode.map(|mode| mode as u16 & 0o7777),
            uid: self.uid,
            gid: self.gid,
            accessed: self.accessed,
            modified: self.modified,
            drop_privileges: self.drop_privileges,
            drop_setgid: self.drop_setgid,
        };
        Ok(node.fs().set_attributes(node.inode(), &set)?)
    }

    /// Whether nothing is to be set.
    pub fn is_empty(&self) -> bool {
        *self == Attributes::default()
    }
}
