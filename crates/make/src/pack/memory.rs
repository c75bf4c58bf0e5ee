//! A tree that a program makes, with the contents of its files.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::OFlags;

use super::tree::{Attributes, Contents, Kind, NodeId, ROOT, ReadAt, Tree};

/// Where the bytes of a file come from.
#[derive(Clone, Debug)]
pub enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The first bytes of a file of the host.
    File {
        /// The file; it is opened when it is read.
        path: PathBuf,
        /// Bytes.
        size: u64,
    },
    /// The first bytes of a file of the host, with holes.
    SparseFile {
        /// The file; it is opened when it is read.
        path: PathBuf,
        /// Bytes.
        size: u64,
        /// The data, ascending and apart.
        data: Vec<Range<u64>>,
    },
    /// Pieces at these offsets, ascending and apart; the rest are holes.
    Sparse {
        /// Bytes.
        size: u64,
        /// The pieces.
        pieces: Vec<(u64, Vec<u8>)>,
    },
}

#[derive(Clone, Debug)]
enum What {
    Directory(BTreeMap<Vec<u8>, NodeId>),
    File(Content),
    Symlink(Vec<u8>),
    Other(Kind<'static>),
}

/// Names and values.
type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// A tree of files in memory.
#[derive(Clone, Debug)]
pub struct MemoryTree {
    nodes: Vec<(Attributes, What)>,
    xattrs: HashMap<NodeId, Xattrs>,
}

impl MemoryTree {
    /// An empty root directory with these attributes.
    pub fn new(root: Attributes) -> MemoryTree {
        MemoryTree {
            nodes: vec![(root, What::Directory(BTreeMap::new()))],
            xattrs: HashMap::new(),
        }
    }

    fn add(
        &mut self,
        directory: NodeId,
        name: &[u8],
        attributes: Attributes,
        what: What,
    ) -> NodeId {
        let id = self.nodes.len() as NodeId;
        self.nodes.push((attributes, what));
        self.link(directory, name, id);
        id
    }

    /// Gives a node that is no directory another name. One that exists is replaced.
    ///
    /// # Panics
    /// If `directory` is no directory of this tree.
    pub fn link(&mut self, directory: NodeId, name: &[u8], node: NodeId) {
        match &mut self.nodes[directory as usize].1 {
            What::Directory(names) => {
                names.insert(name.to_vec(), node);
            }
            _ => panic!("node {directory} is no directory"),
        }
    }

    /// Adds a directory.
    ///
    /// # Panics
    /// If `parent` is no directory of this tree; so do the methods below.
    pub fn directory(&mut self, parent: NodeId, name: &[u8], attributes: Attributes) -> NodeId {
        self.add(parent, name, attributes, What::Directory(BTreeMap::new()))
    }

    /// Adds a file.
    pub fn file(
        &mut self,
        parent: NodeId,
        name: &[u8],
        attributes: Attributes,
        content: Content,
    ) -> NodeId {
        self.add(parent, name, attributes, What::File(content))
    }

    /// Adds a symbolic link.
    pub fn symlink(
        &mut self,
        parent: NodeId,
        name: &[u8],
        attributes: Attributes,
        target: &[u8],
    ) -> NodeId {
        self.add(parent, name, attributes, What::Symlink(target.to_vec()))
    }

    /// Adds a device, a pipe or a socket.
    pub fn special(
        &mut self,
        parent: NodeId,
        name: &[u8],
        attributes: Attributes,
        kind: Kind<'static>,
    ) -> NodeId {
        self.add(parent, name, attributes, What::Other(kind))
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&mut self, node: NodeId, name: &[u8], value: &[u8]) {
        let list = self.xattrs.entry(node).or_default();
        list.retain(|(known, _)| known != name);
        list.push((name.to_vec(), value.to_vec()));
    }

    /// Sets permissions, owner and time.
    pub fn set_attributes(&mut self, node: NodeId, attributes: Attributes) {
        self.nodes[node as usize].0 = attributes;
    }

    /// Sets the owner of every node.
    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        for (attributes, _) in &mut self.nodes {
            (attributes.uid, attributes.gid) = (uid, gid);
        }
    }

    /// The directory of this name in another, if it is there and is one.
    pub fn directory_named(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        match &self.nodes[parent as usize].1 {
            What::Directory(names) => names
                .get(name)
                .copied()
                .filter(|node| matches!(self.nodes[*node as usize].1, What::Directory(_))),
            _ => None,
        }
    }

    /// The root directory.
    pub fn root(&self) -> NodeId {
        ROOT
    }
}

impl Tree for MemoryTree {
    fn len(&self) -> u32 {
        self.nodes.len() as u32
    }

    fn attributes(&self, node: NodeId) -> Attributes {
        self.nodes[node as usize].0
    }

    fn kind(&self, node: NodeId) -> Kind<'_> {
        match &self.nodes[node as usize].1 {
            What::Directory(_) => Kind::Directory,
            What::File(Content::Bytes(bytes)) => Kind::File {
                size: bytes.len() as u64,
            },
            What::File(
                Content::File { size, .. }
                | Content::SparseFile { size, .. }
                | Content::Sparse { size, .. },
            ) => Kind::File { size: *size },
            What::Symlink(target) => Kind::Symlink { target },
            What::Other(kind) => *kind,
        }
    }

    fn entries(&self, directory: NodeId) -> Vec<(&[u8], NodeId)> {
        match &self.nodes[directory as usize].1 {
            What::Directory(names) => names
                .iter()
                .map(|(name, id)| (name.as_slice(), *id))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn xattrs(&self, node: NodeId) -> Vec<(&[u8], &[u8])> {
        let list = self.xattrs.get(&node).map_or(&[][..], Vec::as_slice);
        list.iter()
            .map(|(name, value)| (name.as_slice(), value.as_slice()))
            .collect()
    }

    fn data(&self, file: NodeId) -> Vec<Range<u64>> {
        match &self.nodes[file as usize].1 {
            What::File(Content::Sparse { pieces, .. }) => pieces
                .iter()
                .map(|(at, bytes)| *at..*at + bytes.len() as u64)
                .collect(),
            What::File(Content::SparseFile { data, .. }) => data.clone(),
            _ => match self.kind(file) {
                Kind::File { size } if size > 0 => std::iter::once(0..size).collect(),
                _ => Vec::new(),
            },
        }
    }
}

impl Contents for MemoryTree {
    fn open(&self, file: NodeId) -> io::Result<Box<dyn ReadAt + '_>> {
        match &self.nodes[file as usize].1 {
            What::File(Content::Bytes(bytes)) => Ok(Box::new(Pieces(vec![(0, bytes)]))),
            What::File(Content::Sparse { pieces, .. }) => {
                let pieces = pieces.iter().map(|(at, bytes)| (*at, bytes.as_slice()));
                Ok(Box::new(Pieces(pieces.collect())))
            }
            What::File(Content::File { path, .. } | Content::SparseFile { path, .. }) => {
                // Not one that a link put there meanwhile leads to.
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
                Ok(Box::new(HostFile(file.into())))
            }
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no regular file",
            )),
        }
    }
}

struct Pieces<'t>(Vec<(u64, &'t [u8])>);

impl ReadAt for Pieces<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let found = self.0.iter().find_map(|(at, bytes)| {
            let from = usize::try_from(offset.checked_sub(*at)?).ok()?;
            bytes.get(from..from.checked_add(buf.len())?)
        });
        let bytes = found.ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

struct HostFile(File);

impl ReadAt for HostFile {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }
}
