//! Extent trees: nodes of a header and sorted entries, in the inode (60 bytes) or in a block.
//!
//! ```text
//! | header 12 | entry 12 | entry 12 | ... | unused | tail 4 (block, metadata_csum) |
//! ```
//! Inner nodes (`eh_depth` > 0) hold indexes, leaves (`eh_depth` == 0) extents. [`Node`] and
//! [`NodeMut`] are views over the bytes of either kind of node. A view is only made if magic,
//! `eh_entries` <= `eh_max` <= room, and `eh_depth` <= 5, so its entries can be read without
//! further checks; [`Node::check`] checks the entries themselves.

mod mutate;

use std::mem::size_of;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use mutate::NodeMut;

use crate::checksum::crc32c;
use crate::error::ensure;
use crate::units::{FileBlock, FsBlock};
use crate::{Corrupt, Geometry, Result};

/// `eh_magic`.
pub const EXTENT_MAGIC: u16 = 0xF30A;
/// Deepest tree the format allows: `eh_depth` of the root.
pub const MAX_DEPTH: u16 = 5;
/// Longest written extent, in blocks. `ee_len` above it means unwritten.
pub const MAX_LEN: u32 = 32768;
/// Longest unwritten extent, in blocks.
pub const MAX_UNWRITTEN_LEN: u32 = 32767;
/// Bytes of a header and of an entry of either kind.
pub const ENTRY_BYTES: usize = 12;

/// Header of a node.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct ExtentHeader {
    pub eh_magic: U16,
    pub eh_entries: U16,
    pub eh_max: U16,
    pub eh_depth: U16,
    pub eh_generation: U32,
}

/// Entry of an inner node.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct ExtentIndex {
    pub ei_block: U32,
    pub ei_leaf_lo: U32,
    pub ei_leaf_hi: U16,
    pub ei_unused: U16,
}

/// Entry of a leaf.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct ExtentLeaf {
    pub ee_block: U32,
    pub ee_len: U16,
    pub ee_start_hi: U16,
    pub ee_start_lo: U32,
}

/// Checksum after the last possible entry of a block.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct ExtentTail {
    pub et_checksum: U32,
}

const _: () = {
    assert!(size_of::<ExtentHeader>() == ENTRY_BYTES);
    assert!(size_of::<ExtentIndex>() == ENTRY_BYTES);
    assert!(size_of::<ExtentLeaf>() == ENTRY_BYTES);
    assert!(size_of::<ExtentTail>() == 4);
};

/// One extent, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First logical block.
    pub block: FileBlock,
    /// Blocks: 1 to 32768, or to 32767 if unwritten. (0 only in an unchecked node.)
    pub len: u32,
    /// First physical block.
    pub start: FsBlock,
    /// Allocated, but reads as zeroes.
    pub unwritten: bool,
}

impl Extent {
    /// The end: the logical block after the last one; up to 2^32, hence 64 bits.
    pub fn end(&self) -> u64 {
        u64::from(self.block.0).saturating_add(u64::from(self.len))
    }

    /// Physical block of logical block `block`; `None` if the extent does not cover it.
    pub fn map(&self, block: FileBlock) -> Option<FsBlock> {
        let skip = block.0.checked_sub(self.block.0)?;
        (skip < self.len).then(|| self.start.checked_add(u64::from(skip)))?
    }
}

/// One index, decoded: the subtree at `child` starts at logical block `block`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Index {
    /// First logical block the subtree may map.
    pub block: FileBlock,
    /// Block of the subtree's node.
    pub child: FsBlock,
}

impl From<Extent> for ExtentLeaf {
    fn from(extent: Extent) -> Self {
        let len = if extent.unwritten {
            extent.len.saturating_add(MAX_LEN)
        } else {
            extent.len
        };
        Self {
            ee_block: extent.block.0.into(),
            ee_len: (len as u16).into(),
            ee_start_hi: ((extent.start.0 >> 32) as u16).into(),
            ee_start_lo: (extent.start.0 as u32).into(),
        }
    }
}

impl From<ExtentLeaf> for Extent {
    fn from(leaf: ExtentLeaf) -> Self {
        let len = u32::from(leaf.ee_len.get());
        let unwritten = len > MAX_LEN;
        Self {
            block: FileBlock(leaf.ee_block.get()),
            len: if unwritten {
                len.saturating_sub(MAX_LEN)
            } else {
                len
            },
            start: FsBlock(
                u64::from(leaf.ee_start_hi.get()) << 32 | u64::from(leaf.ee_start_lo.get()),
            ),
            unwritten,
        }
    }
}

impl From<Index> for ExtentIndex {
    fn from(index: Index) -> Self {
        Self {
            ei_block: index.block.0.into(),
            ei_leaf_lo: (index.child.0 as u32).into(),
            ei_leaf_hi: ((index.child.0 >> 32) as u16).into(),
            ei_unused: 0.into(),
        }
    }
}

impl From<ExtentIndex> for Index {
    fn from(index: ExtentIndex) -> Self {
        Self {
            block: FileBlock(index.ei_block.get()),
            child: FsBlock(
                u64::from(index.ei_leaf_hi.get()) << 32 | u64::from(index.ei_leaf_lo.get()),
            ),
        }
    }
}

/// The constraints on a node from its position in the tree.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    /// `eh_depth` it must have; `None` for a root.
    pub depth: Option<u16>,
    /// First logical block it may map.
    pub first: FileBlock,
    /// The end of the logical blocks it may map, exclusive (at most 2^32).
    pub end: u64,
}

impl Expect {
    /// The constraints on a root.
    pub const ROOT: Self = Self {
        depth: None,
        first: FileBlock(0),
        end: 1 << 32,
    };
}

/// The entries that fit a node of `bytes` bytes: 4 in the inode, (block - 12) / 12 in a block (the
/// tail fits into the remainder for every block size).
pub fn capacity(bytes: usize) -> u16 {
    let room = bytes.saturating_sub(size_of::<ExtentHeader>()) / ENTRY_BYTES;
    u16::try_from(room).unwrap_or(u16::MAX)
}

/// A node's bytes, with a checked header.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    header: &'a ExtentHeader,
    /// The bytes after the header.
    body: &'a [u8],
}

impl<'a> Node<'a> {
    /// Makes a view of a node: the 60 bytes of `i_block`, or a whole block.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        let (header, body) = ExtentHeader::ref_from_prefix(bytes)
            .map_err(|_| Corrupt::new("extent node is cut short"))?;
        let (entries, max) = (header.eh_entries.get(), header.eh_max.get());
        let depth = header.eh_depth.get();
        ensure!(
            header.eh_magic.get() == EXTENT_MAGIC,
            "extent node magic is {:#06x}",
            header.eh_magic.get()
        );
        let room = capacity(bytes.len());
        ensure!(
            max <= room,
            "extent node for {max} entries, with room for {room}"
        );
        ensure!(entries <= max, "extent node has {entries} entries of {max}");
        ensure!(depth <= MAX_DEPTH, "extent node has depth {depth}");
        Ok(Self { header, body })
    }

    /// `eh_entries`.
    pub fn len(&self) -> usize {
        usize::from(self.header.eh_entries.get())
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `eh_max`: the capacity in entries.
    pub fn max(&self) -> usize {
        usize::from(self.header.eh_max.get())
    }

    /// `eh_depth`: 0 in a leaf.
    pub fn depth(&self) -> u16 {
        self.header.eh_depth.get()
    }

    /// Whether the entries are extents.
    pub fn is_leaf(&self) -> bool {
        self.depth() == 0
    }

    /// The header.
    pub fn header(&self) -> &'a ExtentHeader {
        self.header
    }

    fn entry(&self, at: usize) -> Option<&'a [u8; ENTRY_BYTES]> {
        let entries = self.body.as_chunks::<ENTRY_BYTES>().0;
        entries.get(..self.len())?.get(at)
    }

    /// Extent `at` (0..`len`) of a leaf; `None` past the end or in an inner node.
    pub fn extent(&self, at: usize) -> Option<Extent> {
        let leaf: ExtentLeaf = zerocopy::transmute!(*self.entry(at)?);
        self.is_leaf().then(|| leaf.into())
    }

    /// Index `at` (0..`len`) of an inner node; `None` past the end or in a leaf.
    pub fn index(&self, at: usize) -> Option<Index> {
        let index: ExtentIndex = zerocopy::transmute!(*self.entry(at)?);
        (!self.is_leaf()).then(|| index.into())
    }

    /// First logical block of entry `at` (both kinds start with it).
    pub fn first_block(&self, at: usize) -> Option<FileBlock> {
        let index: ExtentIndex = zerocopy::transmute!(*self.entry(at)?);
        Some(FileBlock(index.ei_block.get()))
    }

    /// All extents of a leaf; nothing in an inner node.
    pub fn extents(&self) -> impl DoubleEndedIterator<Item = Extent> + use<'a> {
        let node = *self;
        (0..node.len()).filter_map(move |at| node.extent(at))
    }

    /// All indexes of an inner node; nothing in a leaf.
    pub fn indexes(&self) -> impl DoubleEndedIterator<Item = Index> + use<'a> {
        let node = *self;
        (0..node.len()).filter_map(move |at| node.index(at))
    }

    /// The last entry that starts at or before `block`: the one that may map it. `None` if
    /// all start after it (or there are none).
    pub fn search(&self, block: FileBlock) -> Option<usize> {
        let entries = self.body.as_chunks::<ENTRY_BYTES>().0.get(..self.len())?;
        let behind = entries.partition_point(|entry| {
            u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) <= block.0
        });
        behind.checked_sub(1)
    }

    /// The constraints on the child of index `at`: from its first block to that of the next index, or
    /// to `end` (this node's own).
    pub fn expect_child(&self, at: usize, end: u64) -> Option<Expect> {
        let next = at.checked_add(1).and_then(|next| self.first_block(next));
        Some(Expect {
            depth: Some(self.depth().checked_sub(1)?),
            first: self.first_block(at)?,
            end: next.map_or(end, |block| u64::from(block.0).min(end)),
        })
    }

    /// Checks the whole node: depth as expected; entries ascending, not overlapping,
    /// inside `expect`'s range, and pointing into the volume. Only a root may be empty.
    pub fn check(&self, geometry: &Geometry, expect: &Expect) -> Result<()> {
        let depth = self.depth();
        ensure!(
            expect.depth.is_none_or(|expected| expected == depth),
            "extent node has depth {depth}, expected {:?}",
            expect.depth.unwrap_or_default()
        );
        ensure!(
            !self.is_empty() || (expect.depth.is_none() && self.is_leaf()),
            "extent node of depth {depth} has no entries"
        );
        let mut next = u64::from(expect.first.0);
        for at in 0..self.len() {
            let (first, end) = match (self.extent(at), self.index(at)) {
                (Some(extent), _) => {
                    check_extent(geometry, &extent)?;
                    (extent.block, extent.end())
                }
                (_, Some(index)) => {
                    ensure!(
                        geometry.holds_blocks(index.child, 1),
                        "extent index points to block {}, out of bounds",
                        index.child
                    );
                    (index.block, u64::from(index.block.0).saturating_add(1))
                }
                (None, None) => (FileBlock(0), 0),
            };
            ensure!(
                u64::from(first.0) >= next && end <= expect.end,
                "extent entry {at} covers logical blocks {first} to {end}, outside {next} to {}",
                expect.end
            );
            next = end;
        }
        Ok(())
    }
}

fn check_extent(geometry: &Geometry, extent: &Extent) -> Result<()> {
    ensure!(
        extent.len > 0,
        "extent at logical block {} is empty",
        extent.block
    );
    ensure!(
        geometry.holds_blocks(extent.start, u64::from(extent.len)),
        "extent at logical block {} maps blocks {} + {}, out of bounds",
        extent.block,
        extent.start,
        extent.len
    );
    Ok(())
}

/// The correct checksum of the node in `block`, and its offset: after `eh_max` entries.
fn block_checksum(block: &[u8], inode_seed: u32) -> Result<(std::ops::Range<usize>, u32)> {
    let start = Node::new(block)?
        .max()
        .saturating_mul(ENTRY_BYTES)
        .saturating_add(size_of::<ExtentHeader>());
    let place = start..start.saturating_add(size_of::<ExtentTail>());
    ensure!(
        place.end <= block.len(),
        "extent block has no room for its checksum"
    );
    Ok((place, crc32c(inode_seed, &block[..start])))
}

/// Checks the checksum of a node in a block (the inode's checksum covers the root).
/// `inode_seed` is [`Geometry::inode_seed`]; `None`: the volume has no checksums.
pub fn verify_block_checksum(block: &[u8], inode_seed: Option<u32>) -> Result<()> {
    let Some(seed) = inode_seed else {
        return Ok(());
    };
    let (place, right) = block_checksum(block, seed)?;
    let found = ExtentTail::read_from_bytes(&block[place]).map_or(0, |t| t.et_checksum.get());
    ensure!(
        found == right,
        "extent block checksum is {found:#010x}, should be {right:#010x}"
    );
    Ok(())
}

/// Recomputes the checksum of a node in a block, if the volume has checksums.
pub fn update_block_checksum(block: &mut [u8], inode_seed: Option<u32>) -> Result<()> {
    let Some(seed) = inode_seed else {
        return Ok(());
    };
    let (place, crc) = block_checksum(block, seed)?;
    block[place].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}
