//! The input of packing: a tree of nodes, and the contents of its files. Readers of directories and archives
//! implement these two traits; [`MemoryTree`](super::MemoryTree) is built by a program.

use std::io;
use std::ops::Range;

use throughline_extfmt::inode::FileType;

/// A node of a [`Tree`].
pub type NodeId = u32;

/// The root directory of every tree.
pub const ROOT: NodeId = 0;

/// What every node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions with set-user-ID, set-group-ID and sticky: the low twelve bits of `st_mode`.
    pub permissions: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// When the content last changed: seconds since 1970 (negative before).
    pub mtime_seconds: i64,
    /// Nanoseconds after these.
    pub mtime_nanoseconds: u32,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'t> {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Bytes.
        size: u64,
    },
    /// A symbolic link.
    Symlink {
        /// Where it leads.
        target: &'t [u8],
    },
    /// A character device.
    CharDevice {
        /// Which driver: below 2^12.
        major: u32,
        /// Which of its devices: below 2^20.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Which driver: below 2^12.
        major: u32,
        /// Which of its devices: below 2^20.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl Kind<'_> {
    /// The type in the format.
    pub(crate) fn file_type(&self) -> FileType {
        match self {
            Kind::Directory => FileType::Directory,
            Kind::File { .. } => FileType::Regular,
            Kind::Symlink { .. } => FileType::Symlink,
            Kind::CharDevice { .. } => FileType::CharDevice,
            Kind::BlockDevice { .. } => FileType::BlockDevice,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
        }
    }
}

/// A tree of files. It must not change while it is packed.
pub trait Tree: Sync {
    /// The number of nodes: their ids are below it.
    fn len(&self) -> u32;

    /// Whether there is no node; a tree has at least its root.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Permissions, owner, time.
    fn attributes(&self, node: NodeId) -> Attributes;

    /// What it is.
    fn kind(&self, node: NodeId) -> Kind<'_>;

    /// The names in a directory, in any order, without `.` and `..`. A node that is no directory may have
    /// several names.
    fn entries(&self, directory: NodeId) -> Vec<(&[u8], NodeId)>;

    /// Extended attributes, as `getxattr(2)` shows them.
    fn xattrs(&self, node: NodeId) -> Vec<(&[u8], &[u8])>;

    /// The ranges of a file that hold data, in bytes, ascending and apart; what is between them is zero.
    fn data(&self, file: NodeId) -> Vec<Range<u64>>;
}

/// The bytes of the files of a tree.
pub trait Contents: Sync {
    /// Opens a file for reading. Several threads open and read files at the same time.
    ///
    /// # Errors
    /// Those of the source.
    fn open(&self, file: NodeId) -> io::Result<Box<dyn ReadAt + '_>>;

    /// A source that must be read in its own order, such as a compressed stream: hands over the data of all
    /// files, those of one file ascending. `None`: [`Contents::open`] serves every file.
    fn stream(&self) -> Option<Box<dyn Stream + '_>> {
        None
    }
}

/// An open file.
pub trait ReadAt {
    /// Fills `buf` from byte `offset` on.
    ///
    /// # Errors
    /// Those of the source; `UnexpectedEof` if the file has become shorter.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

/// Takes the bytes of a file from `offset` on.
pub type Sink<'s> = dyn FnMut(NodeId, u64, &[u8]) -> io::Result<()> + 's;

/// A source in its own order.
pub trait Stream {
    /// Hands all data to `sink`.
    ///
    /// # Errors
    /// Those of the source, and those of `sink`, as they are.
    fn read(&mut self, sink: &mut Sink<'_>) -> io::Result<()>;
}
