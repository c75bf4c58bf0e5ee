//! Types that the parts of a directory share: a name that was found, a place for a new one, how names are stored.

use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::{FileBlock, FsBlock, InodeNumber, dir as format};

use crate::error::Corrupt;
use crate::inode::Inode;
use crate::names::Names;

/// The block where a directory starts.
pub(super) const FIRST: FileBlock = FileBlock(0);
/// Byte of `..` in it.
pub(super) const DOTDOT_OFFSET: usize = 12;
/// Bytes of `.` and `..` in it.
pub(super) const DOTS_BYTES: usize = 24;

/// The most bytes that the blocks of a directory may have without `large_dir`.
pub(super) const MAX_BYTES_SHORT: u64 = u32::MAX as u64;

/// Where entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// Behind the inode of `..`, in `i_block`.
    Main,
    /// In the attribute's value.
    Value,
}

/// A name, found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// What it means.
    pub(crate) ino: InodeNumber,
    pub(super) at: Spot,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// At that byte of a region of the inode.
    Inline(Region, usize),
    /// At that byte of a leaf.
    Leaf(FsBlock, usize),
}

/// Where a name that was not found can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Into the inode, perhaps.
    Inline,
    /// Into that leaf.
    Leaf(FsBlock),
    /// Nowhere: the directory has to grow.
    None,
}

/// How a directory's names are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Inline,
    Linear,
    Hashed,
}

pub(super) fn shape(fs: &Names, dir: &Inode) -> Shape {
    let flags = dir.raw.read().flags();
    if flags.contains(InodeFlags::INLINE_DATA) {
        Shape::Inline
    } else if flags.contains(InodeFlags::INDEX) && fs.hash_rules.indexes(flags) {
        Shape::Hashed
    } else {
        Shape::Linear
    }
}

/// Whether the directory was removed. Who came by its name has it still, but nothing keeps its blocks: they may be read
/// only while it has links, which whoever removes it takes away under its lock. Where nothing is written, nothing is removed:
/// a count of 0 is damage, and the names are there.
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

/// A name to be added.
pub(super) struct NewEntry<'a> {
    pub(super) name: &'a [u8],
    pub(super) ino: InodeNumber,
    /// Its type, as entries hold it.
    pub(super) code: u8,
}

impl NewEntry<'_> {
    /// Bytes it needs.
    pub(super) fn len_bytes(&self) -> usize {
        format::record_bytes(self.name.len())
    }
}
