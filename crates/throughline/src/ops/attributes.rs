//! Operations on the attributes of one inode.

use smallvec::SmallVec;
use throughline_ext::{InodeFlags, XattrMode};

use super::Outcome;
use crate::metadata::Attributes;
use crate::node::Node;
#[cfg(doc)]
use crate::xattrs::Xattrs;

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
    Outcome::of(&[node], |_| Ok(node.fs().set_flags(node.inode(), flags)?))
}

/// Sets the inode's project.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::set_project`].
pub fn set_project(node: &Node, project: u32) -> Outcome<()> {
    Outcome::of(&[node], |_| {
        Ok(node.fs().set_project(node.inode(), project)?)
    })
}

/// Sets the inode's generation.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::set_version`].
pub fn set_version(node: &Node, version: u32) -> Outcome<()> {
    Outcome::of(&[node], |_| {
        Ok(node.fs().set_generation(node.inode(), version)?)
    })
}

/// Sets an extended attribute.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Xattrs::set_with`].
pub fn set_xattr(node: &Node, name: &[u8], value: &[u8], mode: XattrMode) -> Outcome<()> {
    Outcome::of(&[node], |_| {
        Ok(node.fs().set_xattr(node.inode(), name, value, mode)?)
    })
}

/// Sets an ACL for a caller outside the inode's group without the right to act as a member: setting an access
/// ACL also clears the setgid bit.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`set_xattr`]; [`Reason::Invalid`](crate::Reason::Invalid) for any other attribute.
pub fn set_acl_clearing_setgid(node: &Node, name: &[u8], value: &[u8]) -> Outcome<()> {
    Outcome::of(&[node], |_| {
        Ok(node
            .fs()
            .set_acl_clearing_setgid(node.inode(), name, value)?)
    })
}

/// Removes an extended attribute.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Xattrs::remove`].
pub fn remove_xattr(node: &Node, name: &[u8]) -> Outcome<()> {
    Outcome::of(&[node], |_| {
        Ok(node.fs().remove_xattr(node.inode(), name)?)
    })
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
    Outcome::of(&[node], |_| Ok(node.fs().drop_capability(node.inode())?))
}

/// Removes a file's capabilities, and clears the set-user-ID and set-group-ID bits. Returns whether the mode
/// changed.
///
/// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
///
/// # Errors
/// As [`Node::drop_privileges`].
pub fn drop_privileges(node: &Node, is_outsider: impl FnOnce(u32) -> bool) -> Outcome<bool> {
    Outcome::of(&[node], |_| {
        Ok(node.fs().drop_privileges(node.inode(), is_outsider)?)
    })
}
