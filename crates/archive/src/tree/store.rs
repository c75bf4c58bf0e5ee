//! The tables of a tree, and the only code that changes the links between them.

use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::HashTable;

use super::NodeId;
use super::xattrs::XattrSets;
use crate::content::{Content, Extent, Extents, FileContent, SourceId};
use crate::error::{Error, Result, shown};
use crate::limits::Limits;
use crate::meta::{Kind, Meta, Time};

/// No index.
pub(super) const NONE: u32 = u32::MAX;

/// A node. What the fields below `mode` mean depends on the kind.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) mtime_seconds: i64,
    /// File: its size.
    pub(super) size: u64,
    /// Directory: its first name. File: the place of its only extent, or the index of its first of several.
    /// Symlink: the index of its target. Device: its numbers. Free: the next free node.
    pub(super) place: u64,
    pub(super) mtime_nanoseconds: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u32,
    /// A set of attributes; 0 for none.
    pub(super) xattrs: u32,
    /// An index of access and change times, or `NONE`.
    pub(super) times: u32,
    /// Directory: names in it. File: extents listed; `NONE` if it has no hole. Symlink: bytes of the target.
    pub(super) count: u32,
    /// File: the source. Directory: the last layer that uncovered what is below it, or `NONE`.
    pub(super) source: u32,
    /// File: the item of the source. Directory: its depth.
    pub(super) item: u32,
    /// Directory: its name. Others: one of their names, or `NONE`.
    pub(super) name: u32,
    /// `st_mode`, or 0 if the node is free.
    pub(super) mode: u16,
}

const _: () = assert!(size_of::<Node>() == 72);

impl Node {
    pub(super) fn new(kind: Kind) -> Node {
        Node {
            mtime_seconds: 0,
            size: 0,
            place: if kind == Kind::Directory {
                u64::from(NONE)
            } else {
                0
            },
            mtime_nanoseconds: 0,
            uid: 0,
            gid: 0,
            links: 0,
            xattrs: 0,
            times: NONE,
            count: 0,
            source: NONE,
            item: 0,
            name: NONE,
            mode: kind.mode_bits(),
        }
    }

    pub(super) fn root() -> Node {
        let mut root = Node::new(Kind::Directory);
        root.mode |= 0o755;
        root.links = 1;
        root
    }

    pub(super) fn is_free(&self) -> bool {
        self.mode == 0
    }

    pub(super) fn kind(&self) -> Kind {
        Kind::of_mode(u32::from(self.mode)).expect("a node in use has a kind")
    }
}

/// A name in a directory; the names of one directory form a doubly linked list.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) parent: u32,
    /// Where its bytes are, after their length.
    pub(super) bytes: u32,
    pub(super) node: u32,
    /// Also the next free one.
    pub(super) next: u32,
    previous: u32,
    /// The last layer that gave this name.
    pub(super) layer: u32,
}

const _: () = assert!(size_of::<Name>() == 24);

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) limits: Limits,
    pub(super) nodes: Vec<Node>,
    free_node: u32,
    pub(super) live_nodes: usize,
    pub(super) names: Vec<Name>,
    free_name: u32,
    pub(super) live_names: usize,
    /// Names by directory and bytes.
    table: HashTable<u32>,
    hasher: foldhash::quality::RandomState,
    /// Names, each after its length in a byte; and targets of symlinks.
    pub(super) bytes: Vec<u8>,
    /// Extents of the files that have holes.
    extents: Vec<Extent>,
    /// Access and change times of the nodes that have them.
    pub(super) times: Vec<(Option<Time>, Option<Time>)>,
    /// Entries of `times` without a node.
    free_times: Vec<u32>,
    pub(super) xattrs: XattrSets,
    /// The current layer; names of earlier ones are covered by whiteouts.
    pub(super) layer: u32,
    pub(super) data_bytes: u64,
    /// Nodes below this number are not used again.
    kept: usize,
    /// The owner and group of what is added.
    pub(super) owner: Option<(u32, u32)>,
}

impl Store {
    /// A root directory.
    pub(super) fn new(limits: Limits) -> Store {
        Store {
            limits,
            nodes: vec![Node::root()],
            free_node: NONE,
            live_nodes: 1,
            names: Vec::new(),
            free_name: NONE,
            live_names: 0,
            table: HashTable::new(),
            hasher: foldhash::quality::RandomState::default(),
            bytes: Vec::new(),
            extents: Vec::new(),
            times: Vec::new(),
            free_times: Vec::new(),
            xattrs: XattrSets::default(),
            layer: 0,
            data_bytes: 0,
            kept: 0,
            owner: None,
        }
    }

    pub(super) fn node_of(&self, id: NodeId) -> &Node {
        let node = &self.nodes[id.index()];
        debug_assert!(!node.is_free(), "node {} was removed", id.0);
        node
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    pub(super) fn name_bytes(&self, name: u32) -> &[u8] {
        let start = self.names[name as usize].bytes as usize;
        let length = usize::from(self.bytes[start]);
        &self.bytes[start + 1..start + 1 + length]
    }

    /// The names in a directory.
    pub(super) fn names_in(&self, directory: NodeId) -> Vec<u32> {
        let mut names = Vec::new();
        let mut name = self.node_of(directory).place as u32;
        while name != NONE {
            names.push(name);
            name = self.names[name as usize].next;
        }
        names
    }

    fn hash(&self, parent: NodeId, name: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        parent.0.hash(&mut hasher);
        name.hash(&mut hasher);
        hasher.finish()
    }

    /// The name of those bytes in the directory.
    pub(super) fn find(&self, parent: NodeId, name: &[u8]) -> Option<u32> {
        let same = |&other: &u32| {
            self.names[other as usize].parent == parent.0 && self.name_bytes(other) == name
        };
        self.table.find(self.hash(parent, name), same).copied()
    }

    pub(super) fn append_bytes(&mut self, prefix: Option<u8>, bytes: &[u8]) -> Result<u32> {
        let start = self.bytes.len();
        if start + bytes.len() + 1 > self.limits.name_bytes as usize {
            let limit = self.limits.name_bytes;
            return Err(Error::limit(
                shown(bytes),
                format_args!("names need more than {limit} bytes"),
            ));
        }
        self.bytes.extend(prefix);
        self.bytes.extend_from_slice(bytes);
        Ok(start as u32)
    }

    /// Adds a name for a node to a directory that has no such name.
    pub(super) fn attach(&mut self, parent: NodeId, bytes: &[u8], node: NodeId) -> Result<u32> {
        debug_assert!(self.find(parent, bytes).is_none());
        if self.live_names >= self.limits.nodes as usize {
            let limit = self.limits.nodes;
            return Err(Error::limit(
                shown(bytes),
                format_args!("there are more than {limit} names"),
            ));
        }
        let at = self.append_bytes(Some(bytes.len() as u8), bytes)?;
        let first = self.node_of(parent).place as u32;
        let name = Name {
            parent: parent.0,
            bytes: at,
            node: node.0,
            next: first,
            previous: NONE,
            layer: self.layer,
        };
        let index = match self.free_name {
            NONE => {
                self.names.push(name);
                (self.names.len() - 1) as u32
            }
            free => {
                self.free_name = self.names[free as usize].next;
                self.names[free as usize] = name;
                free
            }
        };
        if first != NONE {
            self.names[first as usize].previous = index;
        }
        let directory = self.node_mut(parent);
        directory.place = u64::from(index);
        directory.count += 1;
        self.live_names += 1;
        self.gain(node, index);
        self.insert(index);
        Ok(index)
    }

    fn insert(&mut self, index: u32) {
        let hash_of =
            |names: &[Name], bytes: &[u8], hasher: &foldhash::quality::RandomState, index: u32| {
                let name = &names[index as usize];
                let start = name.bytes as usize;
                let length = usize::from(bytes[start]);
                let mut state = hasher.build_hasher();
                name.parent.hash(&mut state);
                bytes[start + 1..start + 1 + length].hash(&mut state);
                state.finish()
            };
        let (names, bytes, hasher) = (&self.names, &self.bytes, &self.hasher);
        let hash = hash_of(names, bytes, hasher, index);
        let rehash = |&other: &u32| hash_of(names, bytes, hasher, other);
        self.table.insert_unique(hash, index, rehash);
    }

    fn gain(&mut self, node: NodeId, name: u32) {
        let node = self.node_mut(node);
        node.links += 1;
        node.name = name;
    }

    /// Gives a name to another node. The one it had must not be a directory with names in it.
    pub(super) fn retarget(&mut self, name: u32, node: NodeId) {
        let old = NodeId(self.names[name as usize].node);
        self.names[name as usize].node = node.0;
        self.names[name as usize].layer = self.layer;
        self.gain(node, name);
        self.lose(old, name);
    }

    /// Removes a name. If it is that of a directory, that has no names in it.
    pub(super) fn detach(&mut self, index: u32) {
        let parent = NodeId(self.names[index as usize].parent);
        let hash = self.hash(parent, self.name_bytes(index));
        let found = self.table.find_entry(hash, |&other| other == index);
        found.expect("every name is in the table").remove();
        let (previous, next) = {
            let name = &self.names[index as usize];
            (name.previous, name.next)
        };
        match previous {
            NONE => self.node_mut(parent).place = u64::from(next),
            previous => self.names[previous as usize].next = next,
        }
        if next != NONE {
            self.names[next as usize].previous = previous;
        }
        self.node_mut(parent).count -= 1;
        self.live_names -= 1;
        let node = NodeId(self.names[index as usize].node);
        self.names[index as usize].next = self.free_name;
        self.free_name = index;
        self.lose(node, index);
    }

    fn lose(&mut self, id: NodeId, name: u32) {
        let free = self.free_node;
        let node = self.node_mut(id);
        node.links -= 1;
        if node.name == name {
            node.name = NONE;
        }
        if node.links > 0 {
            return;
        }
        assert!(
            node.kind() != Kind::Directory || node.count == 0,
            "a directory is emptied first"
        );
        let data = self.data_of(id);
        self.data_bytes -= data;
        let times = self.node_of(id).times;
        self.free_times
            .extend(Some(times).filter(|&times| times != NONE));
        let is_kept = id.index() < self.kept;
        let node = self.node_mut(id);
        node.mode = 0;
        if !is_kept {
            node.place = u64::from(free);
            self.free_node = id.0;
        }
        self.live_nodes -= 1;
    }

    fn data_of(&self, id: NodeId) -> u64 {
        if self.node_of(id).kind() == Kind::File {
            self.content_of(id).data_bytes()
        } else {
            0
        }
    }

    /// From here on, the numbers so far are not used again.
    pub(super) fn keep_numbers(&mut self) {
        self.kept = self.nodes.len();
        self.free_node = NONE;
    }

    /// A new node without a name.
    pub(super) fn new_node(&mut self, kind: Kind) -> NodeId {
        self.live_nodes += 1;
        match self.free_node {
            NONE => {
                self.nodes.push(Node::new(kind));
                NodeId((self.nodes.len() - 1) as u32)
            }
            free => {
                self.free_node = self.nodes[free as usize].place as u32;
                self.nodes[free as usize] = Node::new(kind);
                NodeId(free)
            }
        }
    }

    /// Keeps a node until [`Store::release`], even if it loses all of its names.
    pub(super) fn hold(&mut self, id: NodeId) {
        self.node_mut(id).links += 1;
    }

    /// Ends [`Store::hold`]; frees the node if it has no name.
    pub(super) fn release(&mut self, id: NodeId) {
        self.lose(id, NONE);
    }

    /// Gives a new node that got no name back.
    pub(super) fn drop_unnamed(&mut self, id: NodeId) {
        self.node_mut(id).links = 1;
        self.lose(id, NONE);
    }

    pub(super) fn set_meta(&mut self, id: NodeId, meta: &Meta) -> Result<()> {
        let xattrs = self.xattrs.intern(&meta.xattrs, &self.limits)?;
        let old = self.node_of(id).times;
        let times = match (meta.atime, meta.ctime) {
            (None, None) => {
                self.free_times.extend(Some(old).filter(|&old| old != NONE));
                NONE
            }
            times => {
                let slot = Some(old)
                    .filter(|&old| old != NONE)
                    .or_else(|| self.free_times.pop());
                let slot = slot.unwrap_or_else(|| {
                    self.times.push((None, None));
                    (self.times.len() - 1) as u32
                });
                self.times[slot as usize] = times;
                slot
            }
        };
        let (uid, gid) = self.owner.unwrap_or((meta.uid, meta.gid));
        let node = self.node_mut(id);
        let permissions = match node.kind() {
            // As Linux has it, whatever an archive says: nothing looks at them.
            Kind::Symlink => 0o777,
            _ => meta.permissions & 0o7777,
        };
        node.mode = node.mode & 0o17_0000 | permissions;
        node.uid = uid;
        node.gid = gid;
        node.mtime_seconds = meta.mtime.seconds;
        node.mtime_nanoseconds = meta.mtime.nanoseconds;
        node.xattrs = xattrs;
        node.times = times;
        Ok(())
    }

    pub(super) fn set_content(&mut self, id: NodeId, content: &FileContent) -> Result<()> {
        let mut end = 0;
        let mut data = 0;
        for extent in &content.extents {
            let next = extent.offset.checked_add(extent.length);
            let sound = extent.length > 0
                && extent.offset >= end
                && extent.at.checked_add(extent.length).is_some();
            end = next
                .filter(|&next| sound && next <= content.size)
                .ok_or_else(|| {
                    Error::Invalid(
                        "data extents are empty, disordered, or go beyond the file's size"
                            .to_owned(),
                    )
                })?;
            data += extent.length;
        }
        let total = self
            .data_bytes
            .checked_add(data)
            .filter(|&total| total <= self.limits.data_bytes);
        let Some(total) = total else {
            let limit = self.limits.data_bytes;
            return Err(Error::limit(
                "contents",
                format_args!("there are more than {limit} bytes of data"),
            ));
        };
        let dense = data == content.size && content.extents.len() == 1;
        let listed = if dense { 0 } else { content.extents.len() };
        if listed > self.limits.extents as usize
            || self.extents.len() + listed > self.limits.all_extents as usize
        {
            return Err(Error::limit(
                "sparse file",
                format_args!("there are {listed} extents, or too many in all"),
            ));
        }
        let first = self.extents.len() as u64;
        if !dense {
            self.extents.extend_from_slice(&content.extents);
        }
        self.data_bytes = total;
        let node = self.node_mut(id);
        node.size = content.size;
        node.source = content.source.0;
        node.item = content.item;
        node.count = if dense { NONE } else { listed as u32 };
        node.place = if dense { content.extents[0].at } else { first };
        Ok(())
    }

    pub(super) fn content_of(&self, id: NodeId) -> Content<'_> {
        let node = self.node_of(id);
        let extents = match node.count {
            NONE => Extents::Dense(node.place),
            count => {
                let start = node.place as usize;
                Extents::Listed(&self.extents[start..start + count as usize])
            }
        };
        Content {
            source: SourceId(node.source),
            item: node.item,
            size: node.size,
            extents,
        }
    }
}
