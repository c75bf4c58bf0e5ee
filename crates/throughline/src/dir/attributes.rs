//! Extended attributes and access control lists (POSIX ACLs) by path. Symbolic links are followed; use a
//! [`Node`] for those of a link itself.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use throughline_ext::{Acl, Last, Reason, XattrMode};

use super::Dir;
use crate::error::{Error, Result};
use crate::metadata::Attributes;
use crate::node::Node;
use crate::volume::Volume;

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

impl Dir {
    fn followed(&self, path: impl AsRef<Path>) -> Result<Node> {
        self.node_at(path, Last::Follow)
    }
}

impl Volume {
    fn followed(&self, path: impl AsRef<Path>) -> Result<Node> {
        self.root()?.followed(path)
    }
}

impl Node {
    fn acl_named(&self, name: &[u8]) -> Result<Option<Acl>> {
        let Some(bytes) = self.xattr(name)? else {
            return Ok(None);
        };
        // The volume's own bytes were checked when they were read.
        let list = Acl::from_user(&bytes);
        list.map_err(|_| Reason::Invalid("an access control list that is not well formed").into())
    }

    fn set_acl_named(&self, name: &[u8], list: Option<&Acl>) -> Result<()> {
        match list {
            Some(list) => self.set_xattr(name, &list.to_user(), XattrMode::Either),
            None => match self.remove_xattr(name) {
                Err(Error::Caller(Reason::NoAttribute)) => Ok(()),
                removed => removed,
            },
        }
    }
}

/// The calls by path, for a directory and for a volume (from its root).
macro_rules! by_path {
    ($of:ty) => {
        impl $of {
            /// Sets the permission bits, as `std::fs::set_permissions`. Symbolic links are followed. Other
            /// attributes: [`set_attributes`](Self::set_attributes).
            ///
            /// **Until a sync or the next commit, a crash undoes it** ([what is
            /// durable](crate#what-is-durable)).
            ///
            /// # Errors
            /// As [`Volume::set_attributes`].
            pub fn set_permissions(
                &self,
                path: impl AsRef<Path>,
                permissions: Permissions,
            ) -> Result<()> {
                let mode = permissions.mode() & 0o7777;
                self.set_attributes(path, &Attributes::new().mode(mode))
            }

            /// The value of an extended attribute; `None` if there is none. Names are complete, such as
            /// `user.comment`. Symbolic links are followed.
            ///
            /// # Errors
            /// As [`Node::xattr`] and [`Volume::open_dir`].
            pub fn xattr(
                &self,
                path: impl AsRef<Path>,
                name: impl AsRef<[u8]>,
            ) -> Result<Option<Vec<u8>>> {
                self.followed(path)?.xattr(name.as_ref())
            }

            /// The names of the extended attributes. Symbolic links are followed.
            ///
            /// # Errors
            /// As [`Node::xattr_names`] and [`Volume::open_dir`].
            pub fn xattr_names(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
                self.followed(path)?.xattr_names()
            }

            /// Sets an extended attribute, replacing an existing one; [`Node::set_xattr`] can require or
            /// forbid one. Symbolic links are followed.
            ///
            /// **Until a sync or the next commit, a crash undoes it** ([what is
            /// durable](crate#what-is-durable)).
            ///
            /// # Errors
            /// As [`Node::set_xattr`] and [`Volume::open_dir`].
            pub fn set_xattr(
                &self,
                path: impl AsRef<Path>,
                name: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> Result<()> {
                let node = self.followed(path)?;
                node.set_xattr(name.as_ref(), value.as_ref(), XattrMode::Either)
            }

            /// Removes an extended attribute. Symbolic links are followed.
            ///
            /// **Until a sync or the next commit, a crash undoes it** ([what is
            /// durable](crate#what-is-durable)).
            ///
            /// # Errors
            /// As [`Node::remove_xattr`] and [`Volume::open_dir`].
            pub fn remove_xattr(
                &self,
                path: impl AsRef<Path>,
                name: impl AsRef<[u8]>,
            ) -> Result<()> {
                self.followed(path)?.remove_xattr(name.as_ref())
            }

            /// The access control list; `None` if there are only permission bits. Symbolic links are
            /// followed.
            ///
            /// # Errors
            /// As [`Node::xattr`] and [`Volume::open_dir`].
            pub fn acl(&self, path: impl AsRef<Path>) -> Result<Option<Acl>> {
                self.followed(path)?.acl_named(ACCESS)
            }

            /// Sets the access control list and updates the permissions; `None` removes it. Symbolic links
            /// are followed.
            ///
            /// **Until a sync or the next commit, a crash undoes it** ([what is
            /// durable](crate#what-is-durable)).
            ///
            /// # Errors
            /// As [`Node::set_xattr`] and [`Volume::open_dir`].
            pub fn set_acl(&self, path: impl AsRef<Path>, list: Option<&Acl>) -> Result<()> {
                self.followed(path)?.set_acl_named(ACCESS, list)
            }

            /// The access control list that new files in a directory inherit. Symbolic links are followed.
            ///
            /// # Errors
            /// As [`Node::xattr`] and [`Volume::open_dir`].
            pub fn default_acl(&self, path: impl AsRef<Path>) -> Result<Option<Acl>> {
                self.followed(path)?.acl_named(DEFAULT)
            }

            /// Sets the access control list that new files in a directory inherit; `None` removes it.
            /// Symbolic links are followed.
            ///
            /// **Until a sync or the next commit, a crash undoes it** ([what is
            /// durable](crate#what-is-durable)).
            ///
            /// # Errors
            /// [`Reason::Denied`] for anything but a directory; as [`Node::set_xattr`] and
            /// [`Volume::open_dir`].
            pub fn set_default_acl(
                &self,
                path: impl AsRef<Path>,
                list: Option<&Acl>,
            ) -> Result<()> {
                self.followed(path)?.set_acl_named(DEFAULT, list)
            }
        }
    };
}

by_path!(Dir);
by_path!(Volume);
