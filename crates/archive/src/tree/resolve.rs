//! Paths of a tree.
//!
//! A path is resolved in the tree alone, as in a root of its own: `/` at its start and `..` at the root
//! lead to the root, and symlinks on the way are followed within the tree. The host's files are never
//! looked at. So an archive that replaces a directory by a symlink to `/etc` and then writes below it
//! writes to the `etc` of the tree, as in the container that it describes.

use super::{NodeId, Tree};
use crate::error::{Error, Result, shown};
use crate::meta::{Kind, NAME_MAX, TARGET_MAX};

/// Symlinks followed in one path, as Linux has it.
const SYMLINKS_MAX: usize = 40;

/// Where a path leads: a directory, and the last component's bytes.
pub(super) struct Place {
    pub(super) parent: NodeId,
    pub(super) name: Vec<u8>,
}

impl Tree {
    /// The node at a path. A symlink as its last component is not followed.
    pub fn lookup(&self, path: &[u8]) -> Option<NodeId> {
        let (parent, last) = split(path);
        let mut parent = self.directory_at(parent)?;
        match last {
            b"" | b"." => return Some(parent),
            b".." => {
                parent = self.parent(parent);
                return Some(parent);
            }
            _ => {}
        }
        let name = self.store.find(parent, last)?;
        Some(NodeId(self.store.names[name as usize].node))
    }

    /// The node of that name in a directory.
    pub fn child(&self, directory: NodeId, name: &[u8]) -> Option<NodeId> {
        self.store
            .find(directory, name)
            .map(|name| NodeId(self.store.names[name as usize].node))
    }

    /// The directory that a directory is in; of the root, the root.
    pub fn parent(&self, directory: NodeId) -> NodeId {
        let node = self.store.node_of(directory);
        debug_assert_eq!(node.kind(), Kind::Directory);
        if directory == NodeId::ROOT {
            NodeId::ROOT
        } else {
            NodeId(self.store.names[node.name as usize].parent)
        }
    }

    fn directory_at(&self, path: &[u8]) -> Option<NodeId> {
        let mut at = NodeId::ROOT;
        let mut followed = 0;
        let mut left = Components::new(path);
        while let Some(component) = left.next() {
            if component == b".." {
                at = self.parent(at);
                continue;
            }
            let next = self.child(at, &component)?;
            let node = self.node(next);
            match node.kind() {
                Kind::Directory => at = next,
                Kind::Symlink => {
                    followed += 1;
                    if followed > SYMLINKS_MAX {
                        return None;
                    }
                    let target = node.target().expect("a symlink has a target");
                    if target.starts_with(b"/") {
                        at = NodeId::ROOT;
                    }
                    left.push(target);
                }
                _ => return None,
            }
        }
        Some(at)
    }

    /// Resolves all but the last component. Directories that are not there are made. `None` for a path that
    /// is the root.
    pub(super) fn place(&mut self, path: &[u8]) -> Result<Option<Place>> {
        let (parent, last) = split(path);
        if parent
            .split(|&byte| byte == b'/')
            .chain([last])
            .any(|component| component == b"..")
        {
            return Err(Error::damaged(
                shown(path),
                "a component is \"..\", which could leave the tree",
            ));
        }
        let parent = self.make_directories(parent, path)?;
        if matches!(last, b"" | b".") {
            return Ok(None);
        }
        check_name(last, path)?;
        let name = last.to_vec();
        Ok(Some(Place { parent, name }))
    }

    fn make_directories(&mut self, parent: &[u8], path: &[u8]) -> Result<NodeId> {
        let mut at = NodeId::ROOT;
        let mut followed = 0;
        let mut left = Components::new(parent);
        while let Some(component) = left.next() {
            if component == b".." {
                // Only a symlink's target has it; the way up ends at the root.
                at = self.parent(at);
                continue;
            }
            check_name(&component, path)?;
            let Some(next) = self.child(at, &component) else {
                let implied = self.implied.clone();
                at = self.new_directory(at, &component, &implied)?;
                continue;
            };
            let node = self.node(next);
            match node.kind() {
                Kind::Directory => at = next,
                Kind::Symlink => {
                    followed += 1;
                    if followed > SYMLINKS_MAX {
                        return Err(Error::damaged(
                            shown(path),
                            "it goes through too many symlinks",
                        ));
                    }
                    let target = node.target().expect("a symlink has a target");
                    if target.starts_with(b"/") {
                        at = NodeId::ROOT;
                    }
                    left.push(target);
                }
                _ => {
                    let problem = format!("{} in it is not a directory", shown(&component));
                    return Err(Error::damaged(shown(path), problem));
                }
            }
        }
        Ok(at)
    }

    pub(super) fn new_directory(
        &mut self,
        parent: NodeId,
        name: &[u8],
        meta: &crate::Meta,
    ) -> Result<NodeId> {
        let depth = self.store.node_of(parent).item + 1;
        if depth > self.store.limits.depth {
            let limit = self.store.limits.depth;
            return Err(Error::limit(
                shown(name),
                format_args!("directories are nested deeper than {limit}"),
            ));
        }
        let id = self.store.new_node(Kind::Directory);
        self.store.node_mut(id).item = depth;
        let made = self
            .store
            .set_meta(id, meta)
            .and_then(|()| self.store.attach(parent, name, id));
        if made.is_err() {
            self.store.drop_unnamed(id);
        }
        made.map(|_| id)
    }
}

/// Splits a path into what is before its last component, and that; slashes at the end do not count.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |last| last + 1);
    let path = &path[..end];
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

fn check_name(name: &[u8], path: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        let problem = format!("a name of {} bytes is longer than {NAME_MAX}", name.len());
        return Err(Error::damaged(shown(path), problem));
    }
    if name.contains(&0) {
        return Err(Error::damaged(shown(path), "a name has a NUL in it"));
    }
    Ok(())
}

pub(super) fn check_target(target: &[u8], path: &[u8]) -> Result<()> {
    if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) {
        let problem =
            format!("the symlink's target is empty, has a NUL, or is longer than {TARGET_MAX}");
        return Err(Error::damaged(shown(path), problem));
    }
    Ok(())
}

/// The components that are left of a path; those of symlinks come before the rest. Bounded, because at most
/// `SYMLINKS_MAX` targets of at most `TARGET_MAX` bytes are pushed.
struct Components {
    /// The last one is next.
    left: Vec<Vec<u8>>,
}

impl Components {
    fn new(path: &[u8]) -> Components {
        let mut components = Components { left: Vec::new() };
        components.push(path);
        components
    }

    fn push(&mut self, path: &[u8]) {
        let real = |component: &&[u8]| !matches!(*component, b"" | b".");
        let components = path.split(|&byte| byte == b'/').filter(real);
        self.left.extend(components.rev().map(<[u8]>::to_vec));
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        self.left.pop()
    }
}
