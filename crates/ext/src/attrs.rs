//! [`Attrs`], what an inode has beside its data: extended attributes and flags; and the freeing of inodes.
//!
//! Names are unknown here. Freeing an inode belongs here because it frees both blocks and attributes, and the
//! values of attributes may be inodes that are freed as well ([`crate::reclaim`]).

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
