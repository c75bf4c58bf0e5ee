//! [`Found`]: a path that was looked up.

use std::sync::Arc;

use throughline_ext::{Inode, Place, Reason};

use super::Dir;
use crate::error::Result;
use crate::metadata::Attributes;
use crate::node::{NewNode, Node};
use crate::ops;

/// The place to which a path leads, from a directory: the inode, if there is one, and its name in its own
/// directory.
pub(crate) struct Found<'a> {
    from: &'a Dir,
    pub(super) place: Place,
}

impl<'a> Found<'a> {
    pub(super) fn new(from: &'a Dir, place: Place) -> Found<'a> {
        Found { from, place }
    }

    /// What is there.
    ///
    /// # Errors
    /// [`Reason::NotFound`].
    pub(crate) fn inode(&self) -> Result<&Arc<Inode>> {
        let inode = self.place.inode.as_ref();
        inode.ok_or_else(|| Reason::NotFound.into())
    }

    pub(crate) fn exists(&self) -> bool {
        self.place.inode.is_some()
    }

    /// What is there, held.
    pub(crate) fn node(&self) -> Result<Node> {
        self.hold(self.inode()?)
    }

    /// The directory of the name.
    pub(crate) fn parent(&self) -> Result<Node> {
        self.hold(&self.place.dir)
    }

    fn hold(&self, inode: &Arc<Inode>) -> Result<Node> {
        match &self.from.node {
            Some(own) if Arc::ptr_eq(inode, own.inode()) => Ok(own.clone()),
            _ => Node::new(&self.from.volume(), Arc::clone(inode)),
        }
    }

    /// The name, if something can be created there.
    pub(crate) fn free_name(&self) -> Result<&[u8]> {
        match self.exists() || self.place.name.is_empty() {
            true => Err(Reason::Exists.into()),
            false => Ok(&self.place.name),
        }
    }

    /// The same, for anything but a directory: the path must not end in a slash.
    pub(crate) fn free_name_of_other(&self) -> Result<&[u8]> {
        let name = self.free_name()?;
        match self.place.slash {
            true => Err(Reason::NotFound.into()),
            false => Ok(name),
        }
    }

    /// Checks that the name can be removed: with a slash at the end, only that of a directory.
    pub(crate) fn removable(self) -> Result<Found<'a>> {
        let is_other = |inode: &Arc<Inode>| !inode.is_dir();
        if self.place.name.is_empty() {
            return Err(Reason::Busy("it is the root of the volume".into()).into());
        }
        match self.place.slash && self.place.inode.as_ref().is_some_and(is_other) {
            true => Err(Reason::NotDir.into()),
            false => Ok(self),
        }
    }

    /// Creates an inode there.
    pub(crate) fn create(&self, kind: NewNode<'_>, attributes: &Attributes) -> Result<Node> {
        let name = self.free_name()?;
        if self.place.slash && kind != NewNode::Directory {
            return Err(Reason::IsDir.into());
        }
        let mode = match kind {
            NewNode::Directory | NewNode::Symlink(_) => 0o777,
            _ => 0o666,
        };
        ops::create(&self.parent()?, name, kind, mode, attributes).into_result()
    }
}
