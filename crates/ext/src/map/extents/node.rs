//! A node of an extent tree: access to entries by index, and replacement of ranges.
//!
//! The format is in [`throughline_extfmt::extent`]. A node is checked before it is changed; a change that
//! finds an invalid node is a bug in this crate and panics.

use throughline_extfmt::extent::{self, Index, NodeMut};
use throughline_extfmt::{FileBlock, FsBlock};

use crate::error::Result;

pub(crate) use throughline_extfmt::extent::Extent;
pub(super) use throughline_extfmt::extent::{MAX_DEPTH, MAX_LEN, MAX_UNWRITTEN_LEN};

/// The part of an extent within `from..to`, which must not be empty.
pub(crate) fn clip(extent: &Extent, from: u64, to: u64) -> Extent {
    let first = u64::from(extent.block.0);
    let (start, end) = (from.max(first), to.min(extent.end()));
    debug_assert!(start < end, "an empty part of {extent:?}");
    Extent {
        block: FileBlock(start as u32),
        len: (end - start) as u32,
        start: FsBlock(extent.start.0 + (start - first)),
        unwritten: extent.unwritten,
    }
}

/// Whether `next` continues `extent` and the two can be merged.
pub(super) fn joins(extent: &Extent, next: &Extent) -> bool {
    let most = if extent.unwritten {
        MAX_UNWRITTEN_LEN
    } else {
        MAX_LEN
    };
    extent.unwritten == next.unwritten
        && extent.end() == u64::from(next.block.0)
        && extent.start.0 + u64::from(extent.len) == next.start.0
        && extent.len + next.len <= most
}

/// A node with a checked header. Callers use only indices below [`Node::len`]; others yield zeroes.
#[derive(Clone, Copy)]
pub(super) struct Node<'a>(extent::Node<'a>);

impl<'a> Node<'a> {
    /// Parses a node.
    ///
    /// # Errors
    /// `Corrupt` for an invalid header.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self> {
        Ok(Self(extent::Node::new(bytes)?))
    }

    /// Number of entries in use.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Capacity in entries.
    pub(super) fn max(&self) -> usize {
        self.0.max()
    }

    /// Number of levels below it: 0 for a leaf.
    pub(super) fn depth(&self) -> u16 {
        self.0.depth()
    }

    /// First file block of an entry, in a leaf or an index node.
    pub(super) fn key(&self, at: usize) -> u32 {
        self.0.first_block(at).unwrap_or_default().0
    }

    /// An entry of a leaf.
    pub(super) fn extent(&self, at: usize) -> Extent {
        let nothing = Extent {
            block: FileBlock(0),
            len: 0,
            start: FsBlock(0),
            unwritten: false,
        };
        self.0.extent(at).unwrap_or(nothing)
    }

    /// The child block of an index entry.
    pub(super) fn child(&self, at: usize) -> FsBlock {
        self.0.index(at).map_or(FsBlock(0), |index| index.child)
    }

    /// The number of entries with keys at or before `block`, which is its insertion point.
    pub(super) fn search(&self, block: u32) -> usize {
        self.0.search(FileBlock(block)).map_or(0, |at| at + 1)
    }
}

fn change(bytes: &mut [u8]) -> NodeMut<'_> {
    NodeMut::new(bytes).expect("a node that was just read")
}

/// Initializes a node of `depth` with full capacity, and copies the entries of `from` starting at index
/// `first`.
pub(super) fn fill(bytes: &mut [u8], depth: u16, from: Option<(Node<'_>, usize)>) {
    let mut node = NodeMut::init(bytes, depth).expect("room for a node");
    let Some((from, first)) = from else { return };
    for (to, at) in (first..from.len()).enumerate() {
        let fits = match from.0.index(at) {
            Some(index) => node.insert_index(to, index),
            None => node.insert_extent(to, from.extent(at)),
        };
        assert!(fits, "more entries than a node has room for");
    }
}

/// Replaces the leaf entries `from..to` by `new`; the caller has checked the room.
pub(super) fn splice(bytes: &mut [u8], from: usize, to: usize, new: &[Extent]) {
    let mut node = change(bytes);
    let (common, old) = (new.len().min(to - from), to - from);
    for (at, extent) in (from..).zip(&new[..common]) {
        node.set_extent(at, *extent);
    }
    node.remove(from + common..from + old);
    for (at, extent) in (from + common..).zip(&new[common..]) {
        assert!(node.insert_extent(at, *extent), "room was seen for it");
    }
}

/// Inserts an index entry; the caller has checked the room.
pub(super) fn insert_child(bytes: &mut [u8], at: usize, key: u32, child: FsBlock) {
    assert!(
        change(bytes).insert_index(
            at,
            Index {
                block: FileBlock(key),
                child
            }
        ),
        "room was seen for it"
    );
}

/// Removes the entries `from..to`.
pub(super) fn remove(bytes: &mut [u8], from: usize, to: usize) {
    change(bytes).remove(from..to);
}

/// Sets the key of an index entry.
pub(super) fn set_key(bytes: &mut [u8], at: usize, key: u32) {
    let mut node = change(bytes);
    if let Some(index) = node.as_node().index(at) {
        node.set_index(
            at,
            Index {
                block: FileBlock(key),
                ..index
            },
        );
    }
}

/// Sets the child of an index entry.
pub(super) fn set_child(bytes: &mut [u8], at: usize, child: FsBlock) {
    let mut node = change(bytes);
    if let Some(index) = node.as_node().index(at) {
        node.set_index(at, Index { child, ..index });
    }
}

/// Maps the keys of a leaf's extents from index `first` on through `shift`.
pub(super) fn move_keys(bytes: &mut [u8], first: usize, shift: impl Fn(u32) -> u32) {
    let mut node = change(bytes);
    for at in first..node.as_node().len() {
        if let Some(extent) = node.as_node().extent(at) {
            node.set_extent(
                at,
                Extent {
                    block: FileBlock(shift(extent.block.0)),
                    ..extent
                },
            );
        }
    }
}
