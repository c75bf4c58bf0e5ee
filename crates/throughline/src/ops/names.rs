//! Operations on names: create, link, unlink, rmdir, rename.

use std::sync::Arc;

use throughline_ext::{Inode, NewInode, RenameMode};

use super::Outcome;
use crate::metadata::Attributes;
use crate::node::{NewNode, Node};

/// Creates an inode with its first name in `dir`. Defaults of `attributes`: `mode`, the effective user and
/// group of this process, and the current time.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::create`].
pub fn create(
    dir: &Node,
    name: &[u8],
    kind: NewNode<'_>,
    mode: u32,
    attributes: &Attributes,
) -> Outcome<Node> {
    Outcome::of(&[dir], |watch| {
        let new = new_inode(mode, attributes);
        let inode = dir.fs().create(dir.inode(), name, kind.into(), new)?;
        watch.add(&inode);
        let node = Node::new(dir.volume(), inode)?;
        let times = attributes.times();
        if !times.is_empty() {
            times.set(&node)?;
        }
        Ok(node)
    })
}

/// Creates a regular file without a name, as [`Node::tmpfile`].
///
/// **Until it gets a name, it is freed with its last handle, or by a crash.**
///
/// # Errors
/// The same.
pub fn tmpfile(dir: &Node, attributes: &Attributes, linkable: bool) -> Outcome<Node> {
    Outcome::of(&[dir], |_| {
        let new = new_inode(0, attributes);
        let inode = dir.fs().tmpfile(dir.inode(), new, linkable)?;
        Node::new(dir.volume(), inode)
    })
}

/// Mode, owner and group of a new inode.
fn new_inode(mode: u32, attributes: &Attributes) -> NewInode {
    NewInode {
        permissions: attributes.mode.unwrap_or(mode) as u16 & 0o7777,
        uid: attributes
            .uid
            .unwrap_or_else(|| rustix::process::geteuid().as_raw()),
        gid: attributes
            .gid
            .unwrap_or_else(|| rustix::process::getegid().as_raw()),
        umask: attributes.umask as u16,
    }
}

/// Creates the hard link `name` in `dir` to `node`.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::link`].
pub fn link(dir: &Node, node: &Node, name: &[u8]) -> Outcome<()> {
    Outcome::of(&[dir, node], |_| {
        Ok(dir.fs().link(node.inode(), dir.inode(), name)?)
    })
}

/// Removes the name of anything but a directory.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::unlink`].
pub fn unlink(dir: &Node, name: &[u8]) -> Outcome<()> {
    Outcome::of(&[dir], |watch| {
        Ok(dir
            .fs()
            .unlink_watched(dir.inode(), name, watch, |_| Ok(()))?)
    })
}

/// As [`unlink`]; puts the inode into `held` before its name is removed, so that it is not freed.
///
/// # Errors
/// As [`Node::unlink`]. The name may have been removed all the same, if there is a node in `held`.
pub fn unlink_held(dir: &Node, name: &[u8], held: &mut Option<Node>) -> Outcome<()> {
    Outcome::of(&[dir], |watch| {
        let hold = |inode: &Arc<Inode>| {
            dir.fs().open_inode(inode)?;
            *held = Some(Node::opened(dir.volume(), Arc::clone(inode)));
            Ok(())
        };
        Ok(dir.fs().unlink_watched(dir.inode(), name, watch, hold)?)
    })
}

/// Removes an empty directory.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::rmdir`].
pub fn rmdir(dir: &Node, name: &[u8]) -> Outcome<()> {
    Outcome::of(&[dir], |watch| {
        Ok(dir.fs().rmdir_watched(dir.inode(), name, watch)?)
    })
}

/// Renames `name` of `dir` to `new_name` of `new_dir`, atomically.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::rename`].
pub fn rename(
    (dir, name): (&Node, &[u8]),
    (new_dir, new_name): (&Node, &[u8]),
    mode: RenameMode,
) -> Outcome<()> {
    Outcome::of(&[dir, new_dir], |watch| {
        let (from, to) = ((dir.inode(), name), (new_dir.inode(), new_name));
        Ok(dir.fs().rename_watched(from, to, mode, watch)?)
    })
}
