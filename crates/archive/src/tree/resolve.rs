//! Paths of a tree.
//!
//! A path is resolved in the tree alone, as in a root of its own: `/` at its start and `..` at the root
//! lead to the root, and symlinks on the way are followed within the tree. The host's files are never
//! looked at. So an archive that replaces a directory by a symlink to `/etc` and then writes below it
//! writes to the `etc` of the tree, as in the container that it describes.

use super::{NodeId, Tree};
use crate::error::{Error, Result, shown};
use crate::meta::{Kind, Meta, NAME_MAX, TARGET_MAX};

/// Symlinks followed in one path, as Linux has it.
const SYMLINKS_MAX: usize = 40;
/// Components of all their targets together. Each member of an archive has a path, and a short one can lead
/// through many long targets.
const TARGETS_MAX: usize = 256;

/// Where a path leads: a directory, and the last component's bytes.
pub(super) struct Place {
    pub(super) parent: NodeId,
    pub(super) name: Vec<u8>,
}

/// Why a path leads to no directory, with the component that stops it.
enum Stop {
    Missing(Vec<u8>),
    NotADirectory(Vec<u8>),
    TooManyLinks,
}

impl Tree {
    /// The node at a path. A symlink as its last component is not followed.
    pub fn lookup(&self, path: &[u8]) -> Option<NodeId> {
        let (parent, last) = split(path);
        let parent = self.directory_at(parent)?;
        match last {
            b"" | b"." => Some(parent),
            b".." => Some(self.parent(parent)),
            _ => self.child(parent, last),
        }
    }

    /// The name that a path ends with, if it is there.
    pub(super) fn name_at(&self, path: &[u8]) -> Option<u32> {
        let (parent, last) = split(path);
        self.store.find(self.directory_at(parent)?, last)
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

    /// The directory that a path leads to, symlinks followed, the last one as well.
    pub(super) fn directory_at(&self, path: &[u8]) -> Option<NodeId> {
        let (mut at, mut left) = (NodeId::ROOT, Components::new(path));
        left.go(self, &mut at).ok().map(|()| at)
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
        // Only a symlink's target has `..`; the way up ends at the root.
        let (mut at, mut left) = (NodeId::ROOT, Components::new(parent));
        loop {
            let problem = match left.go(self, &mut at) {
                Ok(()) => return Ok(at),
                Err(Stop::Missing(name)) => {
                    check_name(&name, path)?;
                    at = self.new_directory(at, &name, &Meta::new(0o755))?;
                    continue;
                }
                Err(Stop::TooManyLinks) => {
                    "it goes through too many symlinks, or too long ones".to_owned()
                }
                Err(Stop::NotADirectory(name)) => {
                    format!("{} in it is not a directory", shown(&name))
                }
            };
            return Err(Error::damaged(shown(path), problem));
        }
    }

    pub(super) fn new_directory(
        &mut self,
        parent: NodeId,
        name: &[u8],
        meta: &Meta,
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

/// The components of a path, without those that lead nowhere.
fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let real = |component: &&[u8]| !matches!(*component, b"" | b".");
    path.split(|&byte| byte == b'/').filter(real)
}

/// The components that are left of a path; those of symlinks come before the rest.
struct Components {
    /// The last one is next.
    left: Vec<Vec<u8>>,
    /// Symlinks followed, and the components of their targets.
    followed: usize,
    of_targets: usize,
}

impl Components {
    fn new(path: &[u8]) -> Components {
        let left = parts(path).rev().map(<[u8]>::to_vec).collect();
        Components {
            left,
            followed: 0,
            of_targets: 0,
        }
    }

    /// Goes on with the target of a symlink. False if the path has too many of them, or too long ones.
    fn follow(&mut self, target: &[u8]) -> bool {
        let before = self.left.len();
        let most = TARGETS_MAX - self.of_targets;
        let parts = parts(target).rev().take(most + 1);
        self.left.extend(parts.map(<[u8]>::to_vec));
        self.followed += 1;
        self.of_targets += self.left.len() - before;
        self.followed <= SYMLINKS_MAX && self.of_targets <= TARGETS_MAX
    }

    /// Goes down from a directory, as far as there are directories.
    fn go(&mut self, tree: &Tree, at: &mut NodeId) -> std::result::Result<(), Stop> {
        while let Some(component) = self.left.pop() {
            if component == b".." {
                *at = tree.parent(*at);
                continue;
            }
            let Some(next) = tree.child(*at, &component) else {
                return Err(Stop::Missing(component));
            };
            let node = tree.node(next);
            match node.kind() {
                Kind::Directory => *at = next,
                Kind::Symlink => {
                    let target = node.target().expect("a symlink has a target");
                    if target.starts_with(b"/") {
                        *at = NodeId::ROOT;
                    }
                    if !self.follow(target) {
                        return Err(Stop::TooManyLinks);
                    }
                }
                _ => return Err(Stop::NotADirectory(component)),
            }
        }
        Ok(())
    }
}
