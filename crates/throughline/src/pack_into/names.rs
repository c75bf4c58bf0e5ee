//! Names: which stay, which go, and which are new.

use std::collections::HashMap;

use throughline_archive::{self as archive, Child, Kind, NodeId};

use super::{Apply, STASH, join};
use crate::error::Result;
use crate::metadata::{Attributes, DeviceNumber};
use crate::node::{NewNode, Node};
use crate::read_tree::at;

/// The names of a directory: the inode of each.
pub(super) type Names = HashMap<Vec<u8>, u64>;

impl Apply<'_> {
    /// Makes the names what the tree has, and makes its new inodes, still without data and metadata.
    pub(super) fn names(
        &mut self,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> archive::Result<()> {
        self.drop_stash()?;
        self.stash_linked()?;
        let mut left = vec![(NodeId::ROOT, Vec::new())];
        while let Some((directory, path)) = left.pop() {
            if !progress(0, 0) {
                return Err(archive::Error::Stopped);
            }
            let node = self.node(directory, &path)?;
            let mut there = names_in(&node).map_err(|error| at(&path, error))?;
            if directory == NodeId::ROOT {
                there.remove(STASH);
            }
            let children = self.tree.children(directory);
            self.remove_others(&node, &path, directory, &children, &mut there)?;
            for child in children {
                let inside = join(&path, child.name);
                let before = there.get(child.name).copied();
                let made = self.name(&node, child, before, &inside);
                made.map_err(|error| at(&inside, error))?;
                if self.tree.node(child.node).kind() == Kind::Directory {
                    left.push((child.node, inside));
                }
            }
        }
        Ok(())
    }

    /// Removes the names that the tree does not have, except a `lost+found` in the root of the volume.
    fn remove_others(
        &mut self,
        node: &Node,
        path: &[u8],
        directory: NodeId,
        children: &[Child<'_>],
        there: &mut Names,
    ) -> archive::Result<()> {
        let is_top = directory == NodeId::ROOT && self.into.is_top;
        let mut gone: Vec<Vec<u8>> = there
            .keys()
            .filter(|name| {
                let is_wanted = children
                    .binary_search_by(|child| child.name.cmp(name.as_slice()))
                    .is_ok();
                // It is left out when the base is read.
                let is_the_file_systems = is_top && name.as_slice() == b"lost+found";
                !(is_wanted || is_the_file_systems)
            })
            .cloned()
            .collect();
        gone.sort_unstable();
        for name in gone {
            there.remove(&name);
            self.remove(node, &name)
                .map_err(|error| at(&join(path, &name), error))?;
        }
        Ok(())
    }

    fn remove(&mut self, directory: &Node, name: &[u8]) -> Result<()> {
        self.done.removed += 1;
        remove(directory, name)
    }

    /// Makes one name what it is in the tree. `before`: the inode that it has.
    fn name(
        &mut self,
        directory: &Node,
        child: Child<'_>,
        before: Option<u64>,
        path: &[u8],
    ) -> Result<()> {
        let known = self.inodes[child.node.index()];
        if known.is_some() && known == before {
            return Ok(());
        }
        let is_directory = self.tree.node(child.node).kind() == Kind::Directory;
        if let (true, Some(ino)) = (is_directory, before) {
            let there = directory.lookup(child.name)?;
            if there.is_dir() {
                // A directory over a directory: the inode stays, and only what is in it changes.
                self.inodes[child.node.index()] = Some(ino);
                self.new.push((child.node, path.to_vec()));
                return Ok(());
            }
            self.remove(directory, child.name)?;
        }
        // What is replaced keeps its name until what replaces it is complete.
        let is_replaced = before.is_some() && !is_directory;
        let node = match known {
            Some(ino) => {
                self.done.hard_links += 1;
                let node = self.into.volume.node_by_ino(ino)?;
                if !is_replaced {
                    return directory.link(&node, child.name);
                }
                node
            }
            None => {
                let node = match is_replaced {
                    true => self.create_in_stash(child.node)?,
                    false => self.create(directory, child.name, child.node)?,
                };
                self.inodes[child.node.index()] = Some(node.ino());
                self.new.push((child.node, path.to_vec()));
                node
            }
        };
        match is_replaced {
            true => self.replace(directory, child, &node, path),
            false => Ok(()),
        }
    }

    /// Makes a new node: of a file, with its size.
    pub(super) fn create(&mut self, directory: &Node, name: &[u8], id: NodeId) -> Result<Node> {
        let wanted = self.tree.node(id);
        let device = wanted.device().unwrap_or_default();
        let numbers = DeviceNumber {
            major: device.major,
            minor: device.minor,
        };
        let kind = match wanted.kind() {
            Kind::Directory => NewNode::Directory,
            Kind::File => NewNode::File,
            Kind::Symlink => NewNode::Symlink(wanted.target().unwrap_or_default()),
            Kind::CharDevice => NewNode::CharDevice(numbers),
            Kind::BlockDevice => NewNode::BlockDevice(numbers),
            Kind::Fifo => NewNode::Fifo,
            Kind::Socket => NewNode::Socket,
        };
        match wanted.kind() {
            Kind::Directory => self.done.directories += 1,
            Kind::File => self.done.files += 1,
            _ => self.done.others += 1,
        }
        let mode = match wanted.kind() {
            Kind::Symlink => u32::from(wanted.permissions()),
            // Only the owner has access until the metadata is set.
            _ => 0o700,
        };
        let attributes = Attributes::new()
            .mode(mode)
            .uid(wanted.uid())
            .gid(wanted.gid());
        let node = directory.create(name, kind, &attributes)?;
        if let Some(content) = wanted.content().filter(|content| content.size > 0) {
            node.open_file()?.set_len(content.size)?;
        }
        Ok(node)
    }
}

/// The names of a directory, and their inodes.
pub(super) fn names_in(directory: &Node) -> Result<Names> {
    let mut names = Names::new();
    let mut from = 0;
    loop {
        let listed = directory.list(from)?;
        let Some(last) = listed.last() else {
            return Ok(names);
        };
        from = last.next;
        let is_own = |name: &[u8]| matches!(name, b"." | b"..");
        let listed = listed.into_iter().filter(|entry| !is_own(&entry.name));
        names.extend(listed.map(|entry| (entry.name, entry.ino)));
    }
}

/// Removes a name, and all below it.
pub(super) fn remove(directory: &Node, name: &[u8]) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    if directory.lookup(name)?.is_dir() {
        let path = std::ffi::OsStr::from_bytes(name);
        return directory.open_dir()?.remove_dir_all(path);
    }
    directory.unlink(name)
}
