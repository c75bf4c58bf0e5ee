//! The directory that keeps inodes without a name of their own: new ones, until they are complete and replace
//! what has their names; and those that lose their names before they get new ones.

use std::collections::HashMap;

use throughline_archive::{self as archive, Child, Kind, NodeId};
use throughline_ext::{Reason, RenameMode};

use super::names::{names_in, remove};
use super::{Apply, STASH, join};
use crate::error::{Error, Result};
use crate::metadata::Attributes;
use crate::node::{NewNode, Node};
use crate::read_tree::at;

/// A name in the stash that becomes another one at once.
const LINK: &[u8] = b"link";

/// A new file whose data is not there yet, and the names that it is to replace.
pub(super) struct Waiting {
    /// Bytes of data that are not written.
    pub(super) missing_bytes: u64,
    /// The directory of each name, by its inode; and the path.
    names: Vec<(u64, Vec<u8>)>,
}

impl Apply<'_> {
    /// The stash; it is made when it is needed.
    fn stash(&mut self) -> Result<Node> {
        if let Some(stash) = &self.stash {
            return Ok(stash.clone());
        }
        let attributes = Attributes::new().mode(0o700).uid(0).gid(0);
        let top = &self.into.directory;
        let made = top.create(STASH, NewNode::Directory, &attributes)?;
        Ok(self.stash.insert(made).clone())
    }

    /// Removes the stash, also that of a run which was interrupted.
    pub(super) fn drop_stash(&mut self) -> archive::Result<()> {
        self.stash = None;
        let top = &self.into.directory;
        match top.lookup(STASH) {
            Ok(_) => remove(top, STASH).map_err(|error| at(STASH, error)),
            Err(Error::Caller(Reason::NotFound)) => Ok(()),
            Err(error) => Err(at(STASH, error)),
        }
    }

    /// Gives inodes of the base that are to get new names one in the stash, because their old names may go
    /// before.
    pub(super) fn stash_linked(&mut self) -> archive::Result<()> {
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
        for (ino, path) in stashed {
            let node = self.into.volume.node_by_ino(ino);
            let linked = node.and_then(|node| {
                let stash = self.stash()?;
                stash.link(&node, ino.to_string().as_bytes())
            });
            linked.map_err(|error| at(&path, error))?;
        }
        Ok(())
    }

    /// Makes a new node that is to replace something.
    pub(super) fn create_in_stash(&mut self, id: NodeId) -> Result<Node> {
        let stash = self.stash()?;
        self.create(&stash, format!("new-{}", id.index()).as_bytes(), id)
    }

    /// Gives a name that something has to a node: at once if it is complete, else when its data is there.
    pub(super) fn replace(
        &mut self,
        directory: &Node,
        child: Child<'_>,
        node: &Node,
        path: &[u8],
    ) -> Result<()> {
        let content = self.tree.node(child.node).content();
        let missing_bytes = content.map_or(0, |content| content.data_bytes());
        if missing_bytes > 0 && !self.into.is_base(child.node) {
            let waiting = self.waiting.entry(child.node).or_insert(Waiting {
                missing_bytes,
                names: Vec::new(),
            });
            waiting.names.push((directory.ino(), path.to_vec()));
            return Ok(());
        }
        if !self.into.is_base(child.node) {
            self.set(node, child.node)?;
        }
        self.put(directory, child.name, node)
    }

    /// Data of a file was written. If that was all, the file gets its metadata and the names that wait for
    /// it.
    pub(super) fn wrote(&mut self, id: NodeId, bytes: u64) -> archive::Result<()> {
        let Some(waiting) = self.waiting.get_mut(&id) else {
            return Ok(());
        };
        waiting.missing_bytes = waiting.missing_bytes.saturating_sub(bytes);
        if waiting.missing_bytes > 0 {
            return Ok(());
        }
        let names = self.waiting.remove(&id).map_or(Vec::new(), |it| it.names);
        for (directory, path) in names {
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(&path);
            let done = self.node(id, &path).and_then(|node| {
                let put = self.set(&node, id).and_then(|()| {
                    let directory = self.into.volume.node_by_ino(directory)?;
                    self.put(&directory, name, &node)
                });
                put.map_err(|error| at(&path, error))
            });
            done?;
        }
        Ok(())
    }

    /// Gives a name that something has to a node. Of anything but a directory, in one transaction.
    fn put(&mut self, directory: &Node, name: &[u8], node: &Node) -> Result<()> {
        let stash = self.stash()?;
        stash.link(node, LINK)?;
        self.done.removed += 1;
        if directory.lookup(name)?.is_dir() {
            remove(directory, name)?;
        }
        stash.rename(LINK, directory, name, RenameMode::Replace)
    }
}
