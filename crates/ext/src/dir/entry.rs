//! Types shared by the parts of a directory: a name that was found, room for a new one, the storage format.

use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::{FileBlock, FsBlock, InodeNumber, dir as format};

use crate::error::Corrupt;
use crate::inode::Inode;
use crate::names::Names;

/// The first block of a directory.
pub(super) const FIRST: FileBlock = FileBlock(0);
/// Offset of `..` in it.
pub(super) const DOTDOT_OFFSET: usize = 12;
/// Bytes that `.` and `..` take in it.
pub(super) const DOTS_BYTES: usize = 24;

/// Maximum size of a directory in bytes without `large_dir`.
pub(super) const MAX_BYTES_SHORT: u64 = u32::MAX as u64;

/// The region of an inode that entries are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// In `i_block`, after the inode number of `..`.
    Main,
    /// In the value of the inline data attribute.
    Value,
}

/// A name that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The inode it names.
    pub(crate) ino: InodeNumber,
    pub(super) at: Spot,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// At this offset in a region of the inode.
    Inline(Region, usize),
    /// At this offset in a leaf.
    Leaf(FsBlock, usize),
}

/// Where a name that was not found can be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Perhaps in the inode.
    Inline,
    /// In this leaf, from the record at this offset on.
    Leaf(FsBlock, usize),
    /// Nowhere: the directory must grow.
    None,
}

/// The storage format of a directory's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Inline,
    Linear,
    Hashed,
}

pub(super) fn shape(fs: &Names, dir: &Inode) -> Shape {
    shape_of(fs, dir.raw.read().flags())
}

/// As [`shape`], of a directory with these flags.
pub(super) fn shape_of(fs: &Names, flags: InodeFlags) -> Shape {
    if flags.contains(InodeFlags::INLINE_DATA) {
        Shape::Inline
    } else if flags.contains(InodeFlags::INDEX) && fs.hash_rules.indexes(flags) {
        Shape::Hashed
    } else {
        Shape::Linear
    }
}

/// Whether the directory was removed. A caller may still hold it, but nothing keeps its blocks allocated:
/// they may be read only while it has links, and removal drops the links under the directory's lock. On a
/// volume that is not written nothing is removed: a link count of 0 is damage, and the names are there.
pub(super) fn is_removed(fs: &Names, dir: &Inode) -> bool {
    let raw = dir.raw.read();
    let is_empty = raw.size_bytes(&fs.geo).is_ok_and(|size| size == 0);
    raw.links_count() == 0 && (is_empty || !fs.is_as_found())
}

pub(super) fn index_damaged(dir: &Inode) -> Corrupt {
    Corrupt {
        inode: Some(dir.ino),
        block: None,
        what: "the directory's hash tree is damaged".into(),
    }
}

/// A name to add.
pub(super) struct NewEntry<'a> {
    pub(super) name: &'a [u8],
    pub(super) ino: InodeNumber,
    /// Its type code as stored in entries.
    pub(super) code: u8,
}

impl NewEntry<'_> {
    /// Bytes that its record needs.
    pub(super) fn len_bytes(&self) -> usize {
        format::record_bytes(self.name.len())
    }
}
