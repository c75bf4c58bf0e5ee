//! Reading a node.

use super::store::NONE;
use super::{NodeId, Tree};
use crate::content::Content;
use crate::meta::{Device, Kind, Meta, Time};

/// A node of a tree, to read.
#[derive(Clone, Copy, Debug)]
pub struct NodeRef<'a> {
    tree: &'a Tree,
    id: NodeId,
}

impl Tree {
    /// The node of that number.
    ///
    /// # Panics
    /// If the number is not one of this tree's.
    pub fn node(&self, id: NodeId) -> NodeRef<'_> {
        assert!(
            !self.store.nodes[id.index()].is_free(),
            "node {} was removed",
            id.0
        );
        NodeRef { tree: self, id }
    }
}

impl<'a> NodeRef<'a> {
    /// The node's number.
    pub fn id(self) -> NodeId {
        self.id
    }

    /// What it is.
    pub fn kind(self) -> Kind {
        self.tree.store.node_of(self.id).kind()
    }

    /// `st_mode`: the kind's bits and the permissions.
    pub fn mode(self) -> u16 {
        self.tree.store.node_of(self.id).mode
    }

    /// Permissions with set-user-ID, set-group-ID and sticky.
    pub fn permissions(self) -> u16 {
        self.mode() & 0o7777
    }

    /// The owner.
    pub fn uid(self) -> u32 {
        self.tree.store.node_of(self.id).uid
    }

    /// The group.
    pub fn gid(self) -> u32 {
        self.tree.store.node_of(self.id).gid
    }

    /// When the content last changed.
    pub fn mtime(self) -> Time {
        let node = self.tree.store.node_of(self.id);
        Time {
            seconds: node.mtime_seconds,
            nanoseconds: node.mtime_nanoseconds,
        }
    }

    fn times(self) -> (Option<Time>, Option<Time>) {
        match self.tree.store.node_of(self.id).times {
            NONE => (None, None),
            index => self.tree.store.times[index as usize],
        }
    }

    /// When it was last read, where the source says so.
    pub fn atime(self) -> Option<Time> {
        self.times().0
    }

    /// When the inode last changed, where the source says so.
    pub fn ctime(self) -> Option<Time> {
        self.times().1
    }

    /// Names and values of the extended attributes, by name.
    pub fn xattrs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let tree: &'a Tree = self.tree;
        tree.store.xattrs.of(tree.store.node_of(self.id).xattrs)
    }

    /// Whether it is as the `lost+found` of every new file system: an empty directory of root's with mode
    /// 0700, without attributes. Such a one is the file system's, and not a part of what is in it.
    pub fn is_usual_lost_and_found(self) -> bool {
        self.kind() == Kind::Directory
            && self.tree.store.node_of(self.id).count == 0
            && self.xattr_set() == 0
            && (self.permissions(), self.uid(), self.gid()) == (0o700, 0, 0)
    }

    /// A number that nodes with equal attributes share; 0 if there are none.
    pub fn xattr_set(self) -> u32 {
        self.tree.store.node_of(self.id).xattrs
    }

    /// How many names it has. 1 for a directory, whatever is in it.
    pub fn links(self) -> u32 {
        self.tree.store.node_of(self.id).links
    }

    /// Bytes of a regular file, or of a symlink's target; 0 for other nodes.
    pub fn size(self) -> u64 {
        let node = self.tree.store.node_of(self.id);
        match node.kind() {
            Kind::File => node.size,
            Kind::Symlink => u64::from(node.count),
            _ => 0,
        }
    }

    /// The content of a regular file.
    pub fn content(self) -> Option<Content<'a>> {
        let tree: &'a Tree = self.tree;
        (self.kind() == Kind::File).then(|| tree.store.content_of(self.id))
    }

    /// What a symlink points to.
    pub fn target(self) -> Option<&'a [u8]> {
        let tree: &'a Tree = self.tree;
        let node = tree.store.node_of(self.id);
        let start = node.place as usize;
        (node.kind() == Kind::Symlink)
            .then(|| &tree.store.bytes[start..start + node.count as usize])
    }

    /// The numbers of a device.
    pub fn device(self) -> Option<Device> {
        let node = self.tree.store.node_of(self.id);
        matches!(node.kind(), Kind::CharDevice | Kind::BlockDevice).then_some(Device {
            major: (node.place >> 32) as u32,
            minor: node.place as u32,
        })
    }

    /// Everything but the content, in the form that the tree's methods take.
    pub fn meta(self) -> Meta {
        Meta {
            permissions: self.permissions(),
            uid: self.uid(),
            gid: self.gid(),
            mtime: self.mtime(),
            atime: self.atime(),
            ctime: self.ctime(),
            xattrs: self
                .xattrs()
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect(),
        }
    }
}
