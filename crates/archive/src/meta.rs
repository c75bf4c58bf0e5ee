//! Kinds of nodes, and what every node has besides its content.

/// The longest name of one component: what ext2, ext3 and ext4 store.
pub const NAME_MAX: usize = 255;
/// The longest target of a symlink that Linux reads back.
pub const TARGET_MAX: usize = 4095;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl Kind {
    /// The type's bits of `st_mode`.
    pub fn mode_bits(self) -> u16 {
        match self {
            Kind::Fifo => 0o01_0000,
            Kind::CharDevice => 0o02_0000,
            Kind::Directory => 0o04_0000,
            Kind::BlockDevice => 0o06_0000,
            Kind::File => 0o10_0000,
            Kind::Symlink => 0o12_0000,
            Kind::Socket => 0o14_0000,
        }
    }

    /// The kind that the type's bits of `mode` say, if they say one.
    pub fn of_mode(mode: u32) -> Option<Kind> {
        Some(match mode & 0o17_0000 {
            0o01_0000 => Kind::Fifo,
            0o02_0000 => Kind::CharDevice,
            0o04_0000 => Kind::Directory,
            0o06_0000 => Kind::BlockDevice,
            0o10_0000 => Kind::File,
            0o12_0000 => Kind::Symlink,
            0o14_0000 => Kind::Socket,
            _ => return None,
        })
    }
}

/// A moment, as seconds since 1970 and nanoseconds after these (below 1,000,000,000).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since the start of 1970, UTC; negative before.
    pub seconds: i64,
    /// Nanoseconds after `seconds`.
    pub nanoseconds: u32,
}

impl Time {
    /// The moment of so many seconds after the start of 1970.
    pub fn from_seconds(seconds: i64) -> Time {
        Time {
            seconds,
            nanoseconds: 0,
        }
    }
}

/// The numbers of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

/// One extended attribute, with its name and value as `getxattr(2)` shows them.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// What every node has besides its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Permissions with set-user-ID, set-group-ID and sticky: the low twelve bits of `st_mode`.
    pub permissions: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// When the content last changed.
    pub mtime: Time,
    /// When it was last read, where the source says so.
    pub atime: Option<Time>,
    /// When the inode last changed, where the source says so.
    pub ctime: Option<Time>,
    /// Extended attributes, in any order; of equal names the last counts.
    pub xattrs: Vec<Xattr>,
}

impl Meta {
    /// The given permissions, owned by root, of the start of 1970.
    pub fn new(permissions: u16) -> Meta {
        Meta {
            permissions,
            ..Meta::default()
        }
    }
}
