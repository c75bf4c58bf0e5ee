//! Changes to a node of an extent tree, in place.

use zerocopy::FromBytes;

use super::{
    ENTRY_BYTES, EXTENT_MAGIC, Extent, ExtentHeader, ExtentIndex, ExtentLeaf, Index, MAX_DEPTH,
    Node, capacity,
};
use crate::{Corrupt, Result};

/// A node's bytes, mutable, with a checked header. Its methods do not check the order of
/// entries: the caller must keep it.
pub struct NodeMut<'a> {
    header: &'a mut ExtentHeader,
    body: &'a mut [u8],
}

impl<'a> NodeMut<'a> {
    /// Makes a mutable view of a node.
    pub fn new(bytes: &'a mut [u8]) -> Result<Self> {
        Node::new(bytes)?;
        let (header, body) = ExtentHeader::mut_from_prefix(bytes)
            .map_err(|_| Corrupt::new("extent node is cut short"))?;
        Ok(Self { header, body })
    }

    /// Makes `bytes` (60 of `i_block`, or a block) an empty node of this depth. The bytes after
    /// the header are zeroed.
    pub fn init(bytes: &'a mut [u8], depth: u16) -> Result<Self> {
        let max = capacity(bytes.len());
        bytes.fill(0);
        let (header, body) = ExtentHeader::mut_from_prefix(bytes)
            .map_err(|_| Corrupt::new("no room for an extent node"))?;
        header.eh_magic.set(EXTENT_MAGIC);
        header.eh_max.set(max);
        header.eh_depth.set(depth.min(MAX_DEPTH));
        Ok(Self { header, body })
    }

    /// The node, read-only.
    pub fn as_node(&self) -> Node<'_> {
        Node {
            header: self.header,
            body: self.body,
        }
    }

    fn set_len(&mut self, len: usize) {
        self.header.eh_entries.set(len as u16);
    }

    fn set_entry(&mut self, at: usize, entry: [u8; ENTRY_BYTES]) {
        let len = self.as_node().len();
        assert!(at < len, "extent entry {at} of {len}");
        if let Some(place) = self.body.as_chunks_mut::<ENTRY_BYTES>().0.get_mut(at) {
            *place = entry;
        }
    }

    fn insert_entry(&mut self, at: usize, entry: [u8; ENTRY_BYTES]) -> bool {
        let (len, max) = (self.as_node().len(), self.as_node().max());
        assert!(at <= len, "extent entry {at} of {len}");
        let entries = self.body.as_chunks_mut::<ENTRY_BYTES>().0;
        let Some(used) = entries.get_mut(..=len).filter(|_| len < max) else {
            return false;
        };
        used[at..].rotate_right(1);
        used[at] = entry;
        self.set_len(len.saturating_add(1));
        true
    }

    /// Replaces extent `at` (must exist) of a leaf.
    pub fn set_extent(&mut self, at: usize, extent: Extent) {
        self.set_entry(at, zerocopy::transmute!(ExtentLeaf::from(extent)));
    }

    /// Replaces index `at` (must exist) of an inner node.
    pub fn set_index(&mut self, at: usize, index: Index) {
        self.set_entry(at, zerocopy::transmute!(ExtentIndex::from(index)));
    }

    /// Inserts an extent before entry `at` (0..=`len`) of a leaf; `false` if the node is full.
    #[must_use]
    pub fn insert_extent(&mut self, at: usize, extent: Extent) -> bool {
        self.insert_entry(at, zerocopy::transmute!(ExtentLeaf::from(extent)))
    }

    /// Inserts an index before entry `at` (0..=`len`) of an inner node; `false` if it is full.
    #[must_use]
    pub fn insert_index(&mut self, at: usize, index: Index) -> bool {
        self.insert_entry(at, zerocopy::transmute!(ExtentIndex::from(index)))
    }

    /// Removes the entries of a range (within 0..`len`); later entries move down.
    pub fn remove(&mut self, range: std::ops::Range<usize>) {
        let len = self.as_node().len();
        assert!(
            range.start <= range.end && range.end <= len,
            "extent entries {range:?} of {len}"
        );
        let entries = self.body.as_chunks_mut::<ENTRY_BYTES>().0;
        entries.copy_within(range.end..len, range.start);
        let left = len.saturating_sub(range.len());
        entries[left..len].fill([0; ENTRY_BYTES]);
        self.set_len(left);
    }

    /// Moves the entries from `at` (0..=`len`) to the end of `other`, a node of the same
    /// depth; `false`, with nothing moved, if they do not fit.
    #[must_use]
    pub fn split_off(&mut self, at: usize, other: &mut NodeMut<'_>) -> bool {
        let (len, other_len) = (self.as_node().len(), other.as_node().len());
        assert!(at <= len, "extent entry {at} of {len}");
        let moved = len.saturating_sub(at);
        let new_len = other_len.saturating_add(moved);
        if new_len > other.as_node().max() {
            return false;
        }
        let from = &self.body.as_chunks::<ENTRY_BYTES>().0[at..len];
        other.body.as_chunks_mut::<ENTRY_BYTES>().0[other_len..new_len].copy_from_slice(from);
        other.set_len(new_len);
        self.remove(at..len);
        true
    }
}
