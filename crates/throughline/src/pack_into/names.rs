//! Names: which stay, which go, and which are new.

use std::collections::HashMap;

use throughline_archive::{self as archive, Child, Kind, NodeId};
use throughline_ext::Reason;

use super::{Apply, STASH, join};
use crate::error::{Error, Result};
use crate::metadata::{Attributes, DeviceNumber};
use crate::node::{NewNode, Node};
use crate::read_tree::at;

/// The names of a directory: the inode of each.
type Names = HashMap<Vec<u8>, u64>;

impl Apply<'_> {
    /// Makes the names what the tree has, and makes its new inodes, still without data and metadata.
    pub(super) fn names(
        &mut self,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> archive::Result<()> {
        self.drop_stash()?;
        self.check_room()?;
        let has_stash = self.stash()?;
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
        if has_stash {
            self.drop_stash()?;
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
            // A directory over a directory: the inode stays, and only what is in it changes.
            let there = directory.lookup(child.name)?;
            if there.is_dir() {
                self.inodes[child.node.index()] = Some(ino);
                self.new.push((child.node, path.to_vec()));
                return Ok(());
            }
        }
        if before.is_some() {
            self.remove(directory, child.name)?;
        }
        if let Some(ino) = known {
            let node = self.into.volume.node_by_ino(ino)?;
            directory.link(&node, child.name)?;
            self.done.hard_links += 1;
            return Ok(());
        }
        let made = self.create(directory, child)?;
        self.inodes[child.node.index()] = Some(made.ino());
        self.new.push((child.node, path.to_vec()));
        Ok(())
    }

    fn create(&mut self, directory: &Node, child: Child<'_>) -> Result<Node> {
        let wanted = self.tree.node(child.node);
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
        directory.create(child.name, kind, &attributes)
    }

    /// Gives inodes of the base that are to get new names one in the stash, because their old names may go
    /// before. Whether there are any.
    fn stash(&mut self) -> archive::Result<bool> {
        let mut stashed = HashMap::new();
        let mut left = vec![(NodeId::ROOT, Vec::new())];
        while let Some((directory, path)) = left.pop() {
            let node = self.node(directory, &path)?;
            let there = names_in(&node).map_err(|error| at(&path, error))?;
            for child in self.tree.children(directory) {
                if !self.into.is_base(child.node) {
                    continue;
                }
                let inside = join(&path, child.name);
                if self.tree.node(child.node).kind() == Kind::Directory {
                    left.push((child.node, inside));
                    continue;
                }
                let ino = self.inodes[child.node.index()];
                if there.get(child.name).copied() != ino {
                    stashed.extend(ino.map(|ino| (ino, inside)));
                }
            }
        }
        if stashed.is_empty() {
            return Ok(false);
        }
        let top = &self.into.directory;
        let failed = |error| at(STASH, error);
        let attributes = Attributes::new().mode(0o700).uid(0).gid(0);
        let made = top.create(STASH, NewNode::Directory, &attributes);
        let stash = made.map_err(failed)?;
        for (ino, path) in stashed {
            let node = self.into.volume.node_by_ino(ino);
            let node = node.map_err(|error| at(&path, error))?;
            let linked = stash.link(&node, ino.to_string().as_bytes());
            linked.map_err(|error| at(&path, error))?;
        }
        Ok(true)
    }

    /// Removes the stash, also that of a run which was interrupted.
    fn drop_stash(&self) -> archive::Result<()> {
        let top = &self.into.directory;
        match top.lookup(STASH) {
            Ok(_) => remove(top, STASH).map_err(|error| at(STASH, error)),
            Err(Error::Caller(Reason::NotFound)) => Ok(()),
            Err(error) => Err(at(STASH, error)),
        }
    }

    /// Refuses before anything is written what cannot fit, as far as that is known: where names go, space
    /// becomes free.
    fn check_room(&self) -> archive::Result<()> {
        let failed = |error| at(b".", error);
        let room = self.into.volume.stat_fs().map_err(failed)?;
        let block_bytes = u64::from(self.into.volume.block_bytes());
        let is_base = |id: &NodeId| self.into.is_base(*id);
        if self.tree.ids().filter(is_base).count() < self.into.count {
            return Ok(());
        }
        let (mut blocks, mut inodes) = (0_u64, 0_u64);
        for id in self.tree.ids().filter(|id| !is_base(id)) {
            inodes += 1;
            let content = self.tree.node(id).content();
            let data = content.map_or(0, |content| content.data_bytes());
            // Less than a block may be in the inode.
            blocks = blocks.saturating_add(data / block_bytes);
        }
        if blocks > room.free_blocks || inodes > u64::from(room.free_inodes) {
            return Err(failed(Reason::NoSpace.into()));
        }
        Ok(())
    }
}

/// The names of a directory, and their inodes.
fn names_in(directory: &Node) -> Result<Names> {
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
fn remove(directory: &Node, name: &[u8]) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    if directory.lookup(name)?.is_dir() {
        let path = std::ffi::OsStr::from_bytes(name);
        return directory.open_dir()?.remove_dir_all(path);
    }
    directory.unlink(name)
}
