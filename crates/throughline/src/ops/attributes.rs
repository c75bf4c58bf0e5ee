//! Operations on the attributes of one inode.

use std::sync::Arc;

use smallvec::SmallVec;
use throughline_ext::{Fs, Inode, InodeFlags, XattrMode};

use super::Outcome;
use crate::metadata::Attributes;
use crate::node::Node;
#[cfg(doc)]
use crate::xattrs::Xattrs;

/// Changes one node.
fn on<T>(
    node: &Node,
    change: impl FnOnce(&Fs, &Arc<Inode>) -> throughline_ext::Result<T>,
) -> Outcome<T> {
    Outcome::of(&[node], |_| Ok(change(node.fs(), node.inode())?))
}

/// Sets attributes.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::set_attributes`].
pub fn set_attributes(node: &Node, attributes: &Attributes) -> Outcome<()> {
    Outcome::of(&[node], |_| attributes.set(node))
}

/// Sets the inode's flags.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::set_flags`].
pub fn set_flags(node: &Node, flags: InodeFlags) -> Outcome<()> {
    on(node, |fs, inode| fs.set_flags(inode, flags))
}

/// Sets the inode's project.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::set_project`].
pub fn set_project(node: &Node, project: u32) -> Outcome<()> {
    on(node, |fs, inode| fs.set_project(inode, project))
}

/// Sets the inode's generation.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::set_version`].
pub fn set_version(node: &Node, version: u32) -> Outcome<()> {
    on(node, |fs, inode| fs.set_generation(inode, version))
}

/// Sets an extended attribute.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Xattrs::set_with`].
pub fn set_xattr(node: &Node, name: &[u8], value: &[u8], mode: XattrMode) -> Outcome<()> {
    on(node, |fs, inode| fs.set_xattr(inode, name, value, mode))
}

/// Sets an ACL for a caller outside the inode's group without the right to act as a member: setting an access
/// ACL also clears the setgid bit.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`set_xattr`]; [`Reason::Invalid`](crate::Reason::Invalid) for any other attribute.
pub fn set_acl_clearing_setgid(node: &Node, name: &[u8], value: &[u8]) -> Outcome<()> {
    on(node, |fs, inode| {
        fs.set_acl_clearing_setgid(inode, name, value)
    })
}

/// Removes an extended attribute.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Xattrs::remove`].
pub fn remove_xattr(node: &Node, name: &[u8]) -> Outcome<()> {
    on(node, |fs, inode| fs.remove_xattr(inode, name))
}

/// Removes a file's capabilities (`security.capability`): before a change of its data, whoever makes it.
/// Returns whether it had any. For a file that is known to have none, this costs nothing.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::drop_privileges`].
pub fn drop_capability(node: &Node) -> Outcome<bool> {
    if node.inode().lacks_capability() {
        return Outcome {
            result: Ok(false),
            changed: SmallVec::new(),
        };
    }
    on(node, |fs, inode| fs.drop_capability(inode))
}

/// Removes a file's capabilities, and clears the set-user-ID and set-group-ID bits. Returns whether the mode
/// changed.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::drop_privileges`].
pub fn drop_privileges(node: &Node, is_outsider: impl FnOnce(u32) -> bool) -> Outcome<bool> {
    on(node, |fs, inode| fs.drop_privileges(inode, is_outsider))
}
