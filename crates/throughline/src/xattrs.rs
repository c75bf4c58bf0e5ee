//! [`Xattrs`]: the extended attributes of an inode. POSIX access control lists (ACLs) are attributes too.
//!
//! Names are complete and at most 255 bytes: `user.`, `trusted.`, `security.` and a suffix,
//! `system.posix_acl_access` and `system.posix_acl_default`. Values have at most 64 KiB. ACLs as attributes
//! have the userspace format (`linux/posix_acl_xattr.h`).

use throughline_ext::{Acl, Reason, XattrMode};

#[cfg(doc)]
use crate::dir::Dir;
use crate::error::{Error, Result};
#[cfg(doc)]
use crate::file::File;
use crate::node::Node;
use crate::ops;

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The extended attributes of an inode, and its access control lists (POSIX ACLs): by path
/// ([`Dir::xattrs`]), of an open file ([`File::xattrs`]), or of a held inode ([`Node::xattrs`]). It holds the
/// inode, and each call reads or sets its present attributes.
///
/// Names are complete, such as `user.comment`. Their prefix is `user.`, `trusted.` or `security.`; ACLs are
/// `system.posix_acl_access` and `system.posix_acl_default`. Values have at most 64 KiB.
#[derive(Clone, Debug)]
pub struct Xattrs {
    node: Node,
}

impl Xattrs {
    pub(crate) fn of(node: Node) -> Xattrs {
        Xattrs { node }
    }

    /// The value of an attribute; `None` if there is none. Needs no I/O for an inode that has neither
    /// attributes of its own nor an attribute block.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for another prefix, for ACLs if they are not kept
    /// ([`VolumeOptions::acl`](crate::VolumeOptions::acl)), and for ACLs of a symbolic link;
    /// [`Reason::AttributeName`]; damage; device errors.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let value = self.node.fs().get_xattr(self.node.inode(), name.as_ref());
        match value.map_err(Error::from) {
            Ok(value) => Ok(Some(value)),
            Err(Error::Caller(Reason::NoAttribute)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names of all attributes, including `trusted.` ones, which only the superuser should see.
    ///
    /// # Errors
    /// Damage; device errors.
    pub fn names(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.node.fs().list_xattrs(self.node.inode())?)
    }

    /// Sets an attribute, replacing an existing one. Setting an access ACL updates the permissions. An ACL
    /// equivalent to permission bits is not stored; an empty one removes the ACL.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::NoSpace`] on the volume, or in the inode's attribute space; [`Reason::AttributeName`],
    /// [`Reason::ValueTooLong`], [`Reason::Invalid`]; [`Reason::Permission`] for an immutable or append-only
    /// inode, and for `user.` on anything but files and directories; [`Reason::Denied`] for a default ACL on
    /// anything but a directory; [`Error::Unsupported`] as [`Xattrs::get`]; [`Reason::ReadOnly`]; device
    /// errors.
    pub fn set(&self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.set_with(name, value, XattrMode::Either)
    }

    /// As [`Xattrs::set`]; `mode` may require or forbid an existing attribute.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// The same; [`Reason::Exists`] and [`Reason::NoAttribute`] according to `mode` (not for ACLs).
    pub fn set_with(
        &self,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        ops::set_xattr(&self.node, name.as_ref(), value.as_ref(), mode).into_result()
    }

    /// Removes an attribute. Removing an ACL that does not exist is not an error.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::NoAttribute`], and those of [`Xattrs::set`].
    pub fn remove(&self, name: impl AsRef<[u8]>) -> Result<()> {
        ops::remove_xattr(&self.node, name.as_ref()).into_result()
    }

    /// The access control list; `None` if there are only permission bits.
    ///
    /// # Errors
    /// As [`Xattrs::get`].
    pub fn acl(&self) -> Result<Option<Acl>> {
        self.list(ACCESS)
    }

    /// Sets the access control list and updates the permissions; `None` removes it.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Xattrs::set`].
    pub fn set_acl(&self, list: Option<&Acl>) -> Result<()> {
        self.set_list(ACCESS, list)
    }

    /// The access control list that new files in this directory inherit.
    ///
    /// # Errors
    /// As [`Xattrs::get`].
    pub fn default_acl(&self) -> Result<Option<Acl>> {
        self.list(DEFAULT)
    }

    /// Sets the access control list that new files in this directory inherit; `None` removes it.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Denied`] for anything but a directory; as [`Xattrs::set`].
    pub fn set_default_acl(&self, list: Option<&Acl>) -> Result<()> {
        self.set_list(DEFAULT, list)
    }

    fn list(&self, name: &[u8]) -> Result<Option<Acl>> {
        let Some(bytes) = self.get(name)? else {
            return Ok(None);
        };
        // The volume's own bytes were checked when they were read.
        let list = Acl::from_user(&bytes);
        list.map_err(|_| Reason::Invalid("an access control list that is not well formed").into())
    }

    fn set_list(&self, name: &[u8], list: Option<&Acl>) -> Result<()> {
        match list {
            Some(list) => self.set(name, list.to_user()),
            None => match self.remove(name) {
                Err(Error::Caller(Reason::NoAttribute)) => Ok(()),
                removed => removed,
            },
        }
    }
}
