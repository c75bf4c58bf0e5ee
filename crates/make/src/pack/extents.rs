//! The extent tree of a file: in the inode, or in blocks below it that are all full but the last.

use throughline_extfmt::extent::{self, Extent, Index, NodeMut};
use throughline_extfmt::inode::I_BLOCK_BYTES;
use throughline_extfmt::{FileBlock, FsBlock};

use crate::error::Result;

/// Extents, or indexes, that the inode itself holds.
pub(crate) const ROOT_ENTRIES: usize = 4;

/// A finished tree.
pub(crate) struct ExtentTree {
    pub(crate) root: [u8; I_BLOCK_BYTES],
    /// The blocks below the inode, and where they are.
    pub(crate) nodes: Vec<(u64, Vec<u8>)>,
}

/// The blocks below the inode, level by level from the leaves up.
fn levels(extents: usize, block_bytes: u32) -> Vec<usize> {
    let capacity = usize::from(extent::capacity(block_bytes as usize));
    let (mut levels, mut count) = (Vec::new(), extents);
    while count > ROOT_ENTRIES {
        count = count.div_ceil(capacity);
        levels.push(count);
    }
    levels
}

/// The number of blocks below the inode.
pub(crate) fn count(extents: usize, block_bytes: u32) -> u64 {
    levels(extents, block_bytes).iter().sum::<usize>() as u64
}

/// Writes a tree with its blocks at `own`, in which `seed` begins the checksums.
pub(crate) fn write(
    extents: &[Extent],
    block_bytes: u32,
    own: impl Iterator<Item = u64>,
    seed: Option<u32>,
) -> Result<ExtentTree> {
    let mut own = own;
    let mut nodes = Vec::new();
    let capacity = usize::from(extent::capacity(block_bytes as usize));
    let depth = levels(extents.len(), block_bytes).len();
    let mut below: Vec<Index> = Vec::new();
    for level in 0..depth {
        let mut indexes = Vec::new();
        let count = if level == 0 {
            extents.len()
        } else {
            below.len()
        };
        for from in (0..count).step_by(capacity) {
            let to = (from + capacity).min(count);
            let place = own.next().unwrap_or(0);
            let mut block = vec![0; block_bytes as usize];
            let node = NodeMut::init(&mut block, level as u16)?;
            let first = match level {
                0 => fill_leaf(node, &extents[from..to]),
                _ => fill_index(node, &below[from..to]),
            };
            extent::update_block_checksum(&mut block, seed)?;
            nodes.push((place, block));
            indexes.push(Index {
                block: first,
                child: FsBlock(place),
            });
        }
        below = indexes;
    }
    let mut root = [0; I_BLOCK_BYTES];
    let node = NodeMut::init(&mut root, depth as u16)?;
    match depth {
        0 => fill_leaf(node, extents),
        _ => fill_index(node, &below),
    };
    Ok(ExtentTree { root, nodes })
}

/// Returns the first block of the file.
fn fill_leaf(mut node: NodeMut<'_>, extents: &[Extent]) -> FileBlock {
    for (at, extent) in extents.iter().enumerate() {
        let fits = node.insert_extent(at, *extent);
        debug_assert!(fits, "chunks are as long as a node");
    }
    extents.first().map_or(FileBlock(0), |extent| extent.block)
}

fn fill_index(mut node: NodeMut<'_>, indexes: &[Index]) -> FileBlock {
    for (at, index) in indexes.iter().enumerate() {
        let fits = node.insert_index(at, *index);
        debug_assert!(fits, "chunks are as long as a node");
    }
    indexes.first().map_or(FileBlock(0), |index| index.block)
}
