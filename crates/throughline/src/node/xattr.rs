//! Extended attributes of a [`Node`], and its lists of access rights (POSIX ACLs), which are attributes too.
//!
//! Names are full ones, of at most 255 bytes: `user.`, `trusted.`, `security.` and what follows, `system.posix_acl_access` and
//! `system.posix_acl_default`. Values have at most 64 KiB; lists of access rights go in and come out in the form that
//! programs know (`linux/posix_acl_xattr.h`).

use throughline_ext::{Reason, XattrMode};

use super::Node;
use crate::error::{Error, Result};

impl Node {
    /// The value of an attribute; `None` for one that it does not have. For a node without such an attribute in its inode,
    /// and without a block of them, this costs a look at memory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for another prefix, and for lists of access rights where they are not kept
    /// ([`OpenOptions::acl`](crate::OpenOptions::acl)) or of a symbolic link;
    /// [`Reason::AttributeName`]; damage; the device's.
    pub fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.fs().get_xattr(self.inode(), name).map_err(Error::from) {
            Ok(value) => Ok(Some(value)),
            Err(Error::Caller(Reason::NoAttribute)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names of its attributes, those of `trusted.` too, which are for the superuser's eyes.
    ///
    /// # Errors
    /// Damage; the device's.
    pub fn xattr_names(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.fs().list_xattrs(self.inode())?)
    }

    /// Sets an attribute. A list of access rights that is set brings the permissions along; one that says no more than the
    /// permissions do is not kept, and an empty one stands for none.
    ///
    /// # Errors
    /// [`Reason::Exists`] and [`Reason::NoAttribute`] as `mode` says (not of access rights);
    /// [`Reason::NoSpace`] on the volume, or where attributes of an inode can be;
    /// [`Reason::AttributeName`], [`Reason::ValueTooLong`], [`Reason::Invalid`];
    /// [`Reason::Permission`] for an immutable or append-only inode, and for `user.` on anything but files and directories;
    /// [`Reason::Denied`] for a default list on anything but a directory;
    /// [`Error::Unsupported`] as [`Node::xattr`]; [`Reason::ReadOnly`]; the device's.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        Ok(self.fs().set_xattr(self.inode(), name, value, mode)?)
    }

    /// As [`Node::set_xattr`], for a list of access rights set by somebody who is not in the inode's group and may not act as
    /// if he were: with the permissions that an access list sets, the setgid bit goes.
    ///
    /// # Errors
    /// As there; [`Reason::Invalid`] for any other attribute.
    pub fn set_acl_clearing_setgid(&self, name: &[u8], value: &[u8]) -> Result<()> {
        Ok(self
            .fs()
            .set_acl_clearing_setgid(self.inode(), name, value)?)
    }

    /// Takes an attribute away. A list of access rights need not be there.
    ///
    /// # Errors
    /// [`Reason::NoAttribute`], and those of [`Node::set_xattr`].
    pub fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        Ok(self.fs().remove_xattr(self.inode(), name)?)
    }
}
