//! Hash trees: index blocks of hashed directories.
//!
//! ```text
//! root | "." 12 | ".." to the end of the block, over it: info 8 | limit,count | (hash, block) ... | tail 8 |
//! node | empty record 8, as long as the block                   | limit,count | (hash, block) ... | tail 8 |
//! ```
//! The first entry has no hash: limit and count are in its place, and its hash counts as 0.
//! [`IndexNode`] is a view of either kind. It exists only if `limit` is the block's capacity
//! and 1 <= `count` <= `limit`.

mod mutate;

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use mutate::{IndexNodeMut, set_indirect_levels, set_own, set_parent};

use crate::checksum::crc32c;
use crate::dir::{DirEntryHead, rec_len_from_disk};
use crate::error::ensure;
use crate::features::Incompat;
use crate::hash::HashVersion;
use crate::units::FileBlock;
use crate::{Corrupt, Geometry, Result};

/// Bytes of limit and count, and of an entry.
pub const INDEX_ENTRY_BYTES: usize = 8;
/// Bytes of the tail.
pub const INDEX_TAIL_BYTES: usize = 8;
/// Offset of the root's info.
pub const ROOT_INFO_OFFSET: usize = 24;
/// Offset of limit and count in a root.
pub const ROOT_ENTRIES_OFFSET: usize = 32;
/// Offset of limit and count in a node.
pub const NODE_ENTRIES_OFFSET: usize = 8;
/// The bits of an entry's block field that are the block number.
pub const BLOCK_MASK: u32 = 0x0FFF_FFFF;

/// The root's info, after "." and "..".
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct DxRootInfo {
    pub reserved_zero: U32,
    pub hash_version: u8,
    pub info_length: u8,
    pub indirect_levels: u8,
    pub unused_flags: u8,
}

/// In place of the first entry's hash.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct DxCountLimit {
    pub limit: U16,
    pub count: U16,
}

/// An entry of an index block.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct DxEntry {
    pub hash: U32,
    pub block: U32,
}

/// After the last possible entry, with `metadata_csum`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct DxTail {
    pub dt_reserved: U32,
    pub dt_checksum: U32,
}

const _: () = {
    assert!(size_of::<DxRootInfo>() == 8);
    assert!(size_of::<DxEntry>() == INDEX_ENTRY_BYTES);
    assert!(size_of::<DxTail>() == INDEX_TAIL_BYTES);
    assert!(offset_of!(DxRootInfo, hash_version) == 4);
};

/// The parameters of a volume's index blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeFormat {
    /// Block size.
    pub block_bytes: u32,
    /// Whether a checksum follows the entries.
    pub tail: bool,
    /// The maximum levels of index blocks: 2, or 3 with `large_dir`.
    pub max_levels: u8,
}

impl TreeFormat {
    /// The format of index blocks of a volume.
    pub fn new(geometry: &Geometry) -> Self {
        Self {
            block_bytes: geometry.block_bytes,
            tail: geometry.has_metadata_csum(),
            max_levels: if geometry.incompat.contains(Incompat::LARGE_DIR) {
                3
            } else {
                2
            },
        }
    }

    /// The entries that fit after `offset`; limit and count take the place of the first.
    fn limit(&self, offset: usize) -> u16 {
        let tail = if self.tail { INDEX_TAIL_BYTES } else { 0 };
        let room = (self.block_bytes as usize)
            .saturating_sub(offset)
            .saturating_sub(tail);
        (room / INDEX_ENTRY_BYTES) as u16
    }

    /// `limit` of a root.
    pub fn root_limit(&self) -> u16 {
        self.limit(ROOT_ENTRIES_OFFSET)
    }

    /// `limit` of a node.
    pub fn node_limit(&self) -> u16 {
        self.limit(NODE_ENTRIES_OFFSET)
    }
}

/// The tree's parameters, from its root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    /// `hash_version` as on disk; see [`HashVersion::from_disk`].
    pub hash_version: u8,
    /// Levels of nodes between the root and the leaves: 0 to 2.
    pub indirect_levels: u8,
}

impl Root {
    /// Reads the info of a root block and checks it, including "." and "..".
    pub fn read(block: &[u8], format: &TreeFormat) -> Result<Self> {
        let block_bytes = format.block_bytes;
        ensure!(
            block.len() as u64 == u64::from(block_bytes),
            "hash tree root is cut short"
        );
        for (offset, rec_len, name) in [
            (0usize, 12, &b"."[..]),
            (12, block.len().saturating_sub(12), &b".."[..]),
        ] {
            let (head, rest) =
                DirEntryHead::ref_from_prefix(block.get(offset..).unwrap_or_default())
                    .map_err(|_| Corrupt::new("hash tree root is cut short"))?;
            ensure!(
                head.inode.get() != 0
                    && rec_len_from_disk(head.rec_len.get(), block_bytes) == rec_len
                    && usize::from(head.name_len) == name.len()
                    && rest.starts_with(name),
                "hash tree root does not start with \".\" and \"..\""
            );
        }
        let info = root_info(block)?;
        ensure!(
            info.reserved_zero.get() == 0
                && usize::from(info.info_length) == size_of::<DxRootInfo>(),
            "hash tree root has info of {} bytes",
            info.info_length
        );
        ensure!(
            info.unused_flags & 1 == 0,
            "hash tree root has flags {:#x}",
            info.unused_flags
        );
        ensure!(
            HashVersion::from_disk(info.hash_version, false).is_some(),
            "hash tree root has hash version {}",
            info.hash_version
        );
        ensure!(
            info.indirect_levels < format.max_levels,
            "hash tree has {} levels of nodes, over {}",
            info.indirect_levels,
            format.max_levels.saturating_sub(1)
        );
        Ok(Self {
            hash_version: info.hash_version,
            indirect_levels: info.indirect_levels,
        })
    }
}

fn root_info(block: &[u8]) -> Result<&DxRootInfo> {
    block
        .get(ROOT_INFO_OFFSET..)
        .and_then(|bytes| DxRootInfo::ref_from_prefix(bytes).ok())
        .map(|(info, _)| info)
        .ok_or_else(|| Corrupt::new("hash tree root is cut short"))
}

/// Whether a block looks like an index node: one empty record as long as the block. An
/// empty leaf block without a checksum tail looks the same.
pub fn is_node(block: &[u8], format: &TreeFormat) -> bool {
    DirEntryHead::ref_from_prefix(block).is_ok_and(|(head, _)| {
        head.inode.get() == 0
            && rec_len_from_disk(head.rec_len.get(), format.block_bytes) == block.len()
    })
}

/// The entries of an index block, with checked count and limit.
#[derive(Clone, Copy)]
pub struct IndexNode<'a> {
    /// `limit` slots; the first holds limit and count in place of its hash.
    slots: &'a [DxEntry],
    count: usize,
}

/// Checks the layout of an index block; returns the offset of its entries, their limit and count.
fn shape(block: &[u8], format: &TreeFormat, is_root: bool) -> Result<(usize, usize, usize)> {
    let offset = if is_root {
        Root::read(block, format)?;
        ROOT_ENTRIES_OFFSET
    } else {
        ensure!(
            block.len() as u64 == u64::from(format.block_bytes) && is_node(block, format),
            "hash tree node does not start with an empty record"
        );
        NODE_ENTRIES_OFFSET
    };
    let (head, _) = DxCountLimit::ref_from_prefix(block.get(offset..).unwrap_or_default())
        .map_err(|_| Corrupt::new("hash tree block is cut short"))?;
    let (limit, count) = (head.limit.get(), head.count.get());
    let room = format.limit(offset);
    ensure!(
        limit == room,
        "hash tree block has a limit of {limit} entries, not {room}"
    );
    ensure!(
        (1..=limit).contains(&count),
        "hash tree block has {count} entries of {limit}"
    );
    Ok((offset, usize::from(limit), usize::from(count)))
}

impl<'a> IndexNode<'a> {
    /// The entries of a root block; its info is read with [`Root::read`].
    pub fn root(block: &'a [u8], format: &TreeFormat) -> Result<Self> {
        Self::new(block, format, true)
    }

    /// The entries of a block below the root.
    pub fn node(block: &'a [u8], format: &TreeFormat) -> Result<Self> {
        Self::new(block, format, false)
    }

    fn new(block: &'a [u8], format: &TreeFormat, is_root: bool) -> Result<Self> {
        let (offset, limit, count) = shape(block, format, is_root)?;
        let bytes = block.get(offset..).unwrap_or_default();
        let (slots, _) = <[DxEntry]>::ref_from_prefix_with_elems(bytes, limit)
            .map_err(|_| Corrupt::new("hash tree block is cut short"))?;
        Ok(Self { slots, count })
    }

    /// The number of entries, including the first (without a hash): at least 1.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The capacity in entries.
    pub fn limit(&self) -> usize {
        self.slots.len()
    }

    /// Whether the block is full.
    pub fn is_full(&self) -> bool {
        self.count >= self.limit()
    }

    /// The lowest hash of entry `at` (0..`count`); 0 for the first. If its lowest bit is set, the
    /// block before also has names with this hash.
    pub fn hash(&self, at: usize) -> u32 {
        if at == 0 {
            0
        } else {
            self.slots.get(at).map_or(0, |entry| entry.hash.get())
        }
    }

    /// Block of the directory that entry `at` (0..`count`) points to.
    pub fn block(&self, at: usize) -> FileBlock {
        FileBlock(
            self.slots
                .get(at)
                .map_or(0, |entry| entry.block.get() & BLOCK_MASK),
        )
    }

    /// The last entry whose hash is at most `hash`: the one whose subtree may hold it.
    pub fn search(&self, hash: u32) -> usize {
        let hashed = self.slots.get(1..self.count).unwrap_or_default();
        hashed.partition_point(|entry| entry.hash.get() <= hash)
    }

    /// Checks every entry: hashes ascend, and blocks are after the root and before `dir_blocks`.
    pub fn check(&self, dir_blocks: u32) -> Result<()> {
        for at in 0..self.count {
            let block = self.block(at);
            ensure!(
                block.0 > 0 && block.0 < dir_blocks,
                "hash tree entry {at} points to block {block} of {dir_blocks}"
            );
            ensure!(
                at == 0 || self.hash(at) >= self.hash(at.saturating_sub(1)),
                "hash tree entry {at} is out of order"
            );
        }
        Ok(())
    }
}

/// The offset of the tail, and its correct checksum: over everything up to the last entry, and
/// the tail with 0 for the checksum.
fn checksum(block: &[u8], format: &TreeFormat, is_root: bool, seed: u32) -> Result<(usize, u32)> {
    let (offset, limit, count) = shape(block, format, is_root)?;
    let used = offset.saturating_add(count.saturating_mul(INDEX_ENTRY_BYTES));
    let tail = offset.saturating_add(limit.saturating_mul(INDEX_ENTRY_BYTES));
    let reserved = tail..tail.saturating_add(4);
    let crc = crc32c(seed, block.get(..used).unwrap_or_default());
    let crc = crc32c(crc, block.get(reserved).unwrap_or_default());
    Ok((tail, crc32c(crc, &[0; 4])))
}

/// Checks the checksum of an index block. `inode_seed`: [`Geometry::inode_seed`] of the
/// directory; `None`: the volume has no checksums.
pub fn verify_checksum(
    block: &[u8],
    format: &TreeFormat,
    is_root: bool,
    inode_seed: Option<u32>,
) -> Result<()> {
    let Some(seed) = inode_seed else {
        return Ok(());
    };
    let (tail, right) = checksum(block, format, is_root, seed)?;
    let found = block
        .get(tail..)
        .and_then(|bytes| DxTail::ref_from_prefix(bytes).ok())
        .map(|(tail, _)| tail.dt_checksum.get());
    ensure!(
        found == Some(right),
        "hash tree block checksum is {:#010x}, should be {right:#010x}",
        found.unwrap_or_default()
    );
    Ok(())
}

/// Recomputes the checksum of an index block, if the volume has checksums.
pub fn update_checksum(
    block: &mut [u8],
    format: &TreeFormat,
    is_root: bool,
    inode_seed: Option<u32>,
) -> Result<()> {
    let Some(seed) = inode_seed else {
        return Ok(());
    };
    let (tail, crc) = checksum(block, format, is_root, seed)?;
    let place = block
        .get_mut(tail..)
        .and_then(|bytes| DxTail::mut_from_prefix(bytes).ok());
    let (tail, _) =
        place.ok_or_else(|| Corrupt::new("hash tree block has no room for its tail"))?;
    tail.dt_checksum.set(crc);
    Ok(())
}
