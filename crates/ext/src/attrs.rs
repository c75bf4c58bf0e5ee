//! [`Attrs`], what belongs to an inode beside its bytes: extended attributes, flags, and its end.
//!
//! It knows of no name. The end of an inode is here because it takes both its blocks and its attributes, whose values may be
//! inodes that end with it ([`crate::reclaim`]).

use std::ops::Deref;
use std::sync::Arc;

use throughline_extfmt::Superblock;

use crate::data::Data;
use crate::system::SystemInodes;
use crate::xattr::Xattrs;

/// What belongs to an inode beside its bytes, and its end: the layer above [`Data`].
pub struct Attrs {
    pub(crate) xattrs: Xattrs,
    pub(crate) system: SystemInodes,
    /// Shared with the files that the page cache holds.
    pub(crate) data: Arc<Data>,
}

impl Deref for Attrs {
    type Target = Data;

    fn deref(&self) -> &Data {
        &self.data
    }
}

impl Attrs {
    /// `acl`: see [`crate::OpenOptions::acl`].
    pub(crate) fn new(data: Arc<Data>, sb: &Superblock, acl: bool) -> Self {
        Self {
            xattrs: Xattrs::new(acl),
            system: SystemInodes::of(sb),
            data,
        }
    }
}
