//! Adds to a tree and removes from it, by path. A later file, symlink or device replaces an existing name
//! with everything below it. A later directory replaces anything but a directory; of a directory it changes
//! only the metadata.
//!
//! Errors of all: [`Error::Damaged`] for a path that leads outside or through what is no directory, for names
//! that no file system holds, and for attributes without a valid name; [`Error::Limit`] for what is beyond
//! the tree's [`Limits`](crate::Limits).

use std::sync::Arc;

use super::resolve::{Place, check_target};
use super::store::NONE;
use super::{NodeId, Tree};
use crate::content::FileContent;
use crate::error::{Error, Result, shown};
use crate::meta::{Device, Kind, Meta, Xattr};

impl Tree {
    /// Adds a directory, or changes the metadata of the one that is there.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a path or an attribute that no file system holds; [`Error::Limit`].
    pub fn mkdir(&mut self, path: &[u8], meta: &Meta) -> Result<NodeId> {
        let Some(Place { parent, name }) = self.place(path)? else {
            let directory = self.directory_at(path).ok_or_else(|| not_a_name(path))?;
            self.store.set_meta(directory, meta)?;
            return Ok(directory);
        };
        if let Some(found) = self.store.find(parent, &name) {
            let id = NodeId(self.store.names[found as usize].node);
            if self.store.node_of(id).kind() == Kind::Directory {
                self.store.set_meta(id, meta)?;
                self.store.names[found as usize].layer = self.store.layer;
                return Ok(id);
            }
            self.store.detach(found);
        }
        self.new_directory(parent, &name, meta)
    }

    /// Adds a regular file.
    ///
    /// # Errors
    /// As [`Tree::mkdir`]; [`Error::Invalid`] for extents that are out of order or past the size.
    pub fn add_file(&mut self, path: &[u8], meta: &Meta, content: &FileContent) -> Result<NodeId> {
        self.add(path, Kind::File, meta, |tree, id| {
            tree.store.set_content(id, content)
        })
    }

    /// Adds a symlink. Its target is stored as it is.
    ///
    /// # Errors
    /// As [`Tree::mkdir`]; also for a target that is empty, has a NUL, or is too long.
    pub fn symlink(&mut self, path: &[u8], target: &[u8], meta: &Meta) -> Result<NodeId> {
        check_target(target, path)?;
        self.add(path, Kind::Symlink, meta, |tree, id| {
            let start = tree.store.append_bytes(None, target)?;
            let node = tree.store.node_mut(id);
            node.place = u64::from(start);
            node.count = target.len() as u32;
            Ok(())
        })
    }

    /// Adds a device, a named pipe or a socket. The numbers count for devices only.
    ///
    /// # Errors
    /// As [`Tree::mkdir`]; [`Error::Invalid`] for another kind.
    pub fn mknod(
        &mut self,
        path: &[u8],
        kind: Kind,
        device: Device,
        meta: &Meta,
    ) -> Result<NodeId> {
        if matches!(kind, Kind::Directory | Kind::File | Kind::Symlink) {
            return Err(Error::Invalid(
                "mknod makes devices, pipes and sockets only".to_owned(),
            ));
        }
        self.add(path, kind, meta, |tree, id| {
            tree.store.node_mut(id).place = u64::from(device.major) << 32 | u64::from(device.minor);
            Ok(())
        })
    }

    /// Adds a name for what is at `target`, which is not a directory.
    ///
    /// # Errors
    /// As [`Tree::mkdir`]; [`Error::Damaged`] if there is nothing at `target`, or a directory.
    pub fn link(&mut self, path: &[u8], target: &[u8]) -> Result<NodeId> {
        let Some(id) = self.lookup(target) else {
            let problem = format!("is a hard link to {}, which is not there", shown(target));
            return Err(Error::damaged(shown(path), problem));
        };
        self.link_node(path, id)
    }

    /// Adds a name for a node that is not a directory.
    ///
    /// # Errors
    /// As [`Tree::link`].
    pub fn link_node(&mut self, path: &[u8], id: NodeId) -> Result<NodeId> {
        if self.node(id).kind() == Kind::Directory {
            return Err(Error::damaged(shown(path), "is a hard link to a directory"));
        }
        if self.node(id).links() >= u32::MAX - 1 {
            return Err(Error::limit(shown(path), "the file has too many names"));
        }
        // The new name may replace the node's only one, or a directory above it.
        self.store.hold(id);
        let linked = self.place(path).and_then(|place| {
            let Place { parent, name } = place.ok_or_else(|| not_a_name(path))?;
            self.put(parent, &name, id)
        });
        self.store.release(id);
        linked.map(|()| id)
    }

    /// Removes a name, and all below it if it is a directory's. Whether it was there.
    pub fn remove(&mut self, path: &[u8]) -> bool {
        match self.name_at(path) {
            Some(name) => {
                self.remove_name(name);
                true
            }
            None => false,
        }
    }

    /// Sets the attributes of a node that is there.
    pub(crate) fn share_xattrs(&mut self, id: NodeId, xattrs: &Arc<Vec<Xattr>>) -> Result<()> {
        let set = self
            .store
            .xattrs
            .intern_shared(xattrs, &self.store.limits)?;
        self.store.node_mut(id).xattrs = set;
        Ok(())
    }

    /// Sets the owner and the group of every node.
    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        for node in &mut self.store.nodes {
            (node.uid, node.gid) = (uid, gid);
        }
    }

    /// Removes the names whose paths are `unwanted`, and all below them. Paths begin without a slash.
    pub fn remove_all(&mut self, unwanted: &dyn Fn(&[u8]) -> bool) {
        let mut found = Vec::new();
        let mut walk = self.walk();
        while let Some(step) = walk.next() {
            if unwanted(step.path) {
                found.push(step.path.to_vec());
                walk.skip_below();
            }
        }
        for path in found {
            self.remove(&path);
        }
    }

    fn add(
        &mut self,
        path: &[u8],
        kind: Kind,
        meta: &Meta,
        fill: impl FnOnce(&mut Tree, NodeId) -> Result<()>,
    ) -> Result<NodeId> {
        let place = self.place(path)?;
        let Place { parent, name } = place.ok_or_else(|| not_a_name(path))?;
        let id = self.store.new_node(kind);
        let filled = self.store.set_meta(id, meta).and_then(|()| fill(self, id));
        if let Err(error) = filled.and_then(|()| self.put(parent, &name, id)) {
            self.store.drop_unnamed(id);
            return Err(error.within(&shown(path)));
        }
        Ok(id)
    }

    /// Gives a name to a node that is not a directory. Replaces what had the name.
    fn put(&mut self, parent: NodeId, name: &[u8], id: NodeId) -> Result<()> {
        match self.store.find(parent, name) {
            Some(found) => {
                self.empty(NodeId(self.store.names[found as usize].node));
                self.store.retarget(found, id);
                Ok(())
            }
            None => self.store.attach(parent, name, id).map(|_| ()),
        }
    }

    pub(super) fn remove_name(&mut self, name: u32) {
        self.empty(NodeId(self.store.names[name as usize].node));
        self.store.detach(name);
    }

    /// Removes all names below a directory; nothing for other nodes.
    fn empty(&mut self, directory: NodeId) {
        if self.store.node_of(directory).kind() != Kind::Directory {
            return;
        }
        let mut at = directory;
        loop {
            let first = self.store.node_of(at).place as u32;
            if first == NONE {
                if at == directory {
                    return;
                }
                let parent = self.parent(at);
                self.store.detach(self.store.node_of(at).name);
                at = parent;
                continue;
            }
            let child = NodeId(self.store.names[first as usize].node);
            match self.store.node_of(child).kind() {
                Kind::Directory => at = child,
                _ => self.store.detach(first),
            }
        }
    }
}

fn not_a_name(path: &[u8]) -> Error {
    Error::damaged(
        shown(path),
        "is the root, or a directory, and not a name for this",
    )
}
