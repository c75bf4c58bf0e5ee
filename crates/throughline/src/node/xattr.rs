//! Extended attributes of a [`Node`]. POSIX access control lists (ACLs) are attributes too.
//!
//! Names are complete and at most 255 bytes: `user.`, `trusted.`, `security.` and a suffix,
//! `system.posix_acl_access` and `system.posix_acl_default`. Values have at most 64 KiB. ACLs use the
//! userspace format (`linux/posix_acl_xattr.h`).

use throughline_ext::{Reason, XattrMode};

use super::Node;
use crate::error::{Error, Result};
use crate::ops;

impl Node {
    /// The value of an attribute; `None` if there is none. Needs no I/O for a node that has neither
    /// attributes in its inode nor an attribute block.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for another prefix, for ACLs if they are not kept
    /// ([`OpenOptions::acl`](crate::OpenOptions::acl)), and for ACLs of a symbolic link;
    /// [`Reason::AttributeName`]; damage; device errors.
    pub fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.fs().get_xattr(self.inode(), name).map_err(Error::from) {
            Ok(value) => Ok(Some(value)),
            Err(Error::Caller(Reason::NoAttribute)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names of all attributes, including `trusted.` ones, which only the superuser should see.
    ///
    /// # Errors
    /// Damage; device errors.
    pub fn xattr_names(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.fs().list_xattrs(self.inode())?)
    }

    /// Sets an attribute. Setting an access ACL updates the permissions. An ACL equivalent to permission bits
    /// is not stored; an empty one removes the ACL.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Exists`] and [`Reason::NoAttribute`] according to `mode` (not for ACLs); [`Reason::NoSpace`]
    /// on the volume, or in the inode's attribute space;
    /// [`Reason::AttributeName`], [`Reason::ValueTooLong`], [`Reason::Invalid`];
    /// [`Reason::Permission`] for an immutable or append-only inode, and for `user.` on anything but files
    /// and directories; [`Reason::Denied`] for a default ACL on anything but a directory;
    /// [`Error::Unsupported`] as [`Node::xattr`]; [`Reason::ReadOnly`]; device errors.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        ops::set_xattr(self, name, value, mode).into_result()
    }

    /// As [`Node::set_xattr`], for an ACL set by a caller outside the inode's group without the right to act
    /// as a member: an access ACL also clears the setgid bit.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// The same; [`Reason::Invalid`] for any other attribute.
    pub fn set_acl_clearing_setgid(&self, name: &[u8], value: &[u8]) -> Result<()> {
        ops::set_acl_clearing_setgid(self, name, value).into_result()
    }

    /// Removes an attribute. Removing an ACL that does not exist is not an error.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::NoAttribute`], and those of [`Node::set_xattr`].
    pub fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        ops::remove_xattr(self, name).into_result()
    }
}
