//! Changes to index blocks of a hash tree, in place.

use std::mem::size_of;

use zerocopy::FromBytes;

use super::{
    DxEntry, DxRootInfo, IndexNode, NODE_ENTRIES_OFFSET, ROOT_ENTRIES_OFFSET, ROOT_INFO_OFFSET,
    TreeFormat, root_info, shape,
};
use crate::dir::{DirEntryHead, rec_len_to_disk};
use crate::inode::FileType;
use crate::units::{FileBlock, InodeNumber};
use crate::{Corrupt, Result};

/// The entries of an index block, mutable. The caller must keep hashes in order.
pub struct IndexNodeMut<'a> {
    slots: &'a mut [DxEntry],
    count: usize,
}

impl<'a> IndexNodeMut<'a> {
    /// The entries of a root block.
    pub fn root(block: &'a mut [u8], format: &TreeFormat) -> Result<Self> {
        Self::new(block, format, true)
    }

    /// The entries of a block below the root.
    pub fn node(block: &'a mut [u8], format: &TreeFormat) -> Result<Self> {
        Self::new(block, format, false)
    }

    fn new(block: &'a mut [u8], format: &TreeFormat, is_root: bool) -> Result<Self> {
        let (offset, limit, count) = shape(block, format, is_root)?;
        let bytes = block.get_mut(offset..).unwrap_or_default();
        let (slots, _) = <[DxEntry]>::mut_from_prefix_with_elems(bytes, limit)
            .map_err(|_| Corrupt::new("hash tree block is cut short"))?;
        Ok(Self { slots, count })
    }

    /// Makes `block` an index node whose only entry points to `first`.
    pub fn init_node(block: &'a mut [u8], format: &TreeFormat, first: FileBlock) -> Result<Self> {
        block.fill(0);
        let (head, _) = DirEntryHead::mut_from_prefix(block)
            .map_err(|_| Corrupt::new("no room for a hash tree node"))?;
        head.rec_len.set(rec_len_to_disk(
            format.block_bytes as usize,
            format.block_bytes,
        ));
        init_entries(block, NODE_ENTRIES_OFFSET, format.node_limit(), first);
        Self::node(block, format)
    }

    /// Makes `block` a root without levels of nodes: "." is `dir`, ".." is `parent`, and the
    /// only entry points to `first`. `filetype`: entries hold types.
    pub fn init_root(
        block: &'a mut [u8],
        format: &TreeFormat,
        (dir, parent): (InodeNumber, InodeNumber),
        hash_version: u8,
        filetype: bool,
        first: FileBlock,
    ) -> Result<Self> {
        block.fill(0);
        let rest = block.len().saturating_sub(12);
        for (offset, inode, rec_len, name) in
            [(0usize, dir, 12, &b"."[..]), (12, parent, rest, b"..")]
        {
            let place = block.get_mut(offset..).unwrap_or_default();
            let (head, after) = DirEntryHead::mut_from_prefix(place)
                .map_err(|_| Corrupt::new("no room for a hash tree root"))?;
            head.inode.set(inode.0);
            head.rec_len
                .set(rec_len_to_disk(rec_len, format.block_bytes));
            head.name_len = name.len() as u8;
            head.file_type = if filetype {
                FileType::Directory.dir_code()
            } else {
                0
            };
            after
                .iter_mut()
                .zip(name)
                .for_each(|(to, from)| *to = *from);
        }
        let place = block.get_mut(ROOT_INFO_OFFSET..).unwrap_or_default();
        if let Ok((info, _)) = DxRootInfo::mut_from_prefix(place) {
            info.hash_version = hash_version;
            info.info_length = size_of::<DxRootInfo>() as u8;
        }
        init_entries(block, ROOT_ENTRIES_OFFSET, format.root_limit(), first);
        Self::root(block, format)
    }

    /// The entries, read-only.
    pub fn as_node(&self) -> IndexNode<'_> {
        IndexNode {
            slots: self.slots,
            count: self.count,
        }
    }

    fn set_count(&mut self, count: usize) {
        self.count = count;
        if let Some(first) = self.slots.first_mut() {
            let limit_and_count = first.hash.get() & 0xFFFF | (count as u32) << 16;
            first.hash.set(limit_and_count);
        }
    }

    /// Inserts an entry before entry `at` (1..=`count`); `false` if the block is full.
    #[must_use]
    pub fn insert(&mut self, at: usize, hash: u32, block: FileBlock) -> bool {
        assert!(
            (1..=self.count).contains(&at),
            "hash tree entry {at} of {}",
            self.count
        );
        if self.as_node().is_full() {
            return false;
        }
        let count = self.count.saturating_add(1);
        let moved = &mut self.slots[at..count];
        moved.rotate_right(1);
        moved[0] = DxEntry {
            hash: hash.into(),
            block: block.0.into(),
        };
        self.set_count(count);
        true
    }

    /// Points entry `at` (0..`count`) to another block.
    pub fn set_block(&mut self, at: usize, block: FileBlock) {
        assert!(at < self.count, "hash tree entry {at} of {}", self.count);
        self.slots[at].block.set(block.0);
    }

    /// Sets the hash of entry `at` (1..`count`).
    pub fn set_hash(&mut self, at: usize, hash: u32) {
        assert!(
            (1..self.count).contains(&at),
            "hash tree entry {at} of {}",
            self.count
        );
        self.slots[at].hash.set(hash);
    }

    /// Removes entry `at` (1..`count`).
    pub fn remove(&mut self, at: usize) {
        assert!(
            (1..self.count).contains(&at),
            "hash tree entry {at} of {}",
            self.count
        );
        self.slots[at..self.count].rotate_left(1);
        self.set_count(self.count.saturating_sub(1));
    }

    /// Moves the entries from `at` (1..`count`) to the end into `other`, a new node: entry `at`
    /// becomes its first. Returns the hash of that entry, to insert into the parent.
    pub fn split_off(&mut self, at: usize, other: &mut IndexNodeMut<'_>) -> u32 {
        assert!(
            (1..self.count).contains(&at),
            "hash tree entry {at} of {}",
            self.count
        );
        let hash = self.as_node().hash(at);
        self.copy_to(at, other);
        self.set_count(at);
        hash
    }

    /// Moves all entries of a full root into `other`, a new node. The root's only entry then
    /// points to `other_block`, and the tree has one more level (see [`set_indirect_levels`]).
    pub fn push_down(&mut self, other: &mut IndexNodeMut<'_>, other_block: FileBlock) {
        self.copy_to(0, other);
        self.set_count(1);
        self.set_block(0, other_block);
    }

    fn copy_to(&mut self, at: usize, other: &mut IndexNodeMut<'_>) {
        let moved = &self.slots[at..self.count];
        assert!(
            moved.len() <= other.slots.len(),
            "a node holds as many entries as a root"
        );
        other.slots[0].block = moved[0].block;
        other.slots[1..moved.len()].copy_from_slice(&moved[1..]);
        other.set_count(moved.len());
    }
}

fn init_entries(block: &mut [u8], offset: usize, limit: u16, first: FileBlock) {
    let place = block.get_mut(offset..).unwrap_or_default();
    if let Ok((entry, _)) = DxEntry::mut_from_prefix(place) {
        entry.hash.set(1 << 16 | u32::from(limit));
        entry.block.set(first.0);
    }
}

/// Sets the levels of nodes in a root block.
pub fn set_indirect_levels(block: &mut [u8], levels: u8) -> Result<()> {
    root_info(block)?;
    let place = block.get_mut(ROOT_INFO_OFFSET..).unwrap_or_default();
    if let Ok((info, _)) = DxRootInfo::mut_from_prefix(place) {
        info.indirect_levels = levels;
    }
    Ok(())
}

/// Points "." of a root block to another inode.
pub fn set_own(block: &mut [u8], own: InodeNumber) {
    if let Some(place) = block.get_mut(..4) {
        place.copy_from_slice(&own.0.to_le_bytes());
    }
}

/// Points ".." of a root block to another inode.
pub fn set_parent(block: &mut [u8], parent: InodeNumber) {
    if let Some(place) = block.get_mut(12..16) {
        place.copy_from_slice(&parent.0.to_le_bytes());
    }
}
