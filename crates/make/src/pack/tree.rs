//! What is packed, as packing asks for it: a tree of files, and where the bytes of these are.

use std::ops::Range;

pub(crate) use throughline_archive::NodeId;
use throughline_archive::{self as archive, Access, OpenContent, Sources, Tree};
use throughline_extfmt::inode::FileType;

/// The root directory of every tree.
pub(crate) const ROOT: NodeId = NodeId::ROOT;

/// What every node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Permissions with set-user-ID, set-group-ID and sticky: the low twelve bits of `st_mode`.
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// When the content last changed: seconds since 1970 (negative before).
    pub(crate) mtime_seconds: i64,
    /// Nanoseconds after these.
    pub(crate) mtime_nanoseconds: u32,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'t> {
    Directory,
    File { size: u64 },
    Symlink { target: &'t [u8] },
    CharDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
    Fifo,
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

/// A tree and its sources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'t> {
    pub(crate) tree: &'t Tree,
    pub(crate) sources: &'t Sources,
}

impl<'t> Input<'t> {
    /// The ids of nodes are below it.
    pub(crate) fn id_bound(self) -> usize {
        self.tree.id_bound()
    }

    /// Permissions, owner, time.
    pub(crate) fn attributes(self, node: NodeId) -> Attributes {
        let node = self.tree.node(node);
        let mtime = node.mtime();
        Attributes {
            permissions: node.permissions(),
            uid: node.uid(),
            gid: node.gid(),
            mtime_seconds: mtime.seconds,
            mtime_nanoseconds: mtime.nanoseconds,
        }
    }

    /// What it is.
    pub(crate) fn kind(self, node: NodeId) -> Kind<'t> {
        let node = self.tree.node(node);
        let device = node.device().unwrap_or_default();
        let (major, minor) = (device.major, device.minor);
        match node.kind() {
            archive::Kind::Directory => Kind::Directory,
            archive::Kind::File => Kind::File { size: node.size() },
            archive::Kind::Symlink => Kind::Symlink {
                target: node.target().unwrap_or_default(),
            },
            archive::Kind::CharDevice => Kind::CharDevice { major, minor },
            archive::Kind::BlockDevice => Kind::BlockDevice { major, minor },
            archive::Kind::Fifo => Kind::Fifo,
            archive::Kind::Socket => Kind::Socket,
        }
    }

    /// Whether it is a directory.
    pub(crate) fn is_directory(self, node: NodeId) -> bool {
        self.tree.node(node).kind() == archive::Kind::Directory
    }

    /// The names in a directory, in the order of their bytes.
    pub(crate) fn entries(self, directory: NodeId) -> Vec<archive::Child<'t>> {
        self.tree.children(directory)
    }

    /// Extended attributes in the order of their names, as `getxattr(2)` shows them.
    pub(crate) fn xattrs(self, node: NodeId) -> impl Iterator<Item = (&'t [u8], &'t [u8])> {
        self.tree.node(node).xattrs()
    }

    /// The ranges of a file that hold data, in bytes, ascending and apart; what is between them is zero.
    pub(crate) fn data(self, file: NodeId) -> Vec<Range<u64>> {
        let content = self.tree.node(file).content();
        let extents = content.into_iter().flat_map(|content| content.extents());
        extents
            .map(|extent| extent.offset..extent.offset + extent.length)
            .collect()
    }

    /// Whether the bytes of a file come in the order of its source.
    pub(crate) fn is_streamed(self, file: NodeId) -> bool {
        self.tree.node(file).content().is_some_and(|content| {
            content.extents().next().is_some()
                && self.sources.get(content.source).access() == Access::Sequential
        })
    }

    /// Opens a file that is not streamed. Several threads open and read files at the same time.
    ///
    /// # Errors
    /// Those of the source.
    pub(crate) fn open(self, file: NodeId) -> archive::Result<OpenContent<'t>> {
        let content = self.tree.node(file).content();
        self.sources.open(content.expect("a file has content"))
    }
}
