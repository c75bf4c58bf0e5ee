//! [`Attrs`]: extended attributes, flags, and the freeing of inodes.
//!
//! It does not depend on names. Inodes are freed here because freeing releases both blocks and attributes,
//! and attribute values may be inodes that are freed as well ([`crate::reclaim`]).

use std::ops::Deref;
use std::sync::Arc;

use throughline_extfmt::Superblock;

use crate::data::Data;
use crate::system::SystemInodes;
use crate::xattr::Xattrs;

/// An inode's extended attributes and flags, and the freeing of inodes: the layer above [`Data`].
pub struct Attrs {
    pub(crate) xattrs: Xattrs,
    pub(crate) system: SystemInodes,
    /// Shared with the files in the page cache.
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
