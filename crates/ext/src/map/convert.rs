//! Converts a mapping to the other format if its root suffices in both: one transaction, no block moves.
//!
//! As in the kernel's ext4 (`chattr -e`), an extent tree becomes pointers if it is a single written extent
//! within the range of the inode's direct pointers. Pointers become extents if there are no indirect blocks
//! and at most four extents result; the kernel converts larger files too.

use throughline_extfmt::extent::{Extent, MAX_LEN, Node, NodeMut};
use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::{FileBlock, FsBlock};

use super::store::{ROOT_BYTES, Root};
use super::tree::Format;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode::Inodes;

/// Number of direct pointers in the inode; the others lead to indirect blocks.
const DIRECT: usize = 12;
const POINTER_BYTES: usize = 4;

/// Converts the mapping to extents or to pointers, and updates the inode's flag, in memory; the caller stores
/// the inode. The file must have no dirty data, and its I/O lock must be held exclusively.
///
/// # Errors
/// `Unsupported` if the mapping is too large; nothing has changed then. `Corrupt`.
pub(crate) fn convert(fs: &Inodes, inode: &Inode, extents: bool) -> Result<()> {
    if fs.geo.cluster_ratio_log > 0 {
        let what = "files without extents on a volume of clusters (bigalloc)";
        return Err(Error::Unsupported(what.into()));
    }
    let _map = inode.map_exclusive();
    let mut raw = inode.raw.write();
    let from = Format::of(&raw);
    let root = raw.i_block();
    let turned = match (from, extents) {
        (Format::Extents, true) | (Format::Indirect, false) => return Ok(()),
        (Format::Extents, false) => to_pointers(root).map_err(|e| e.in_inode(inode.ino))?,
        (Format::Indirect, true) => to_extents(root),
        (Format::None, _) => None,
    };
    let turned = turned.ok_or_else(too_large)?;
    if !extents && raw.size_bytes(&fs.geo).unwrap_or(u64::MAX) > super::size::max_indirect(fs) {
        return Err(too_large());
    }
    inode.mapping.changed();
    *raw.i_block_mut() = turned;
    let mut flags = raw.flags();
    flags.set(InodeFlags::EXTENTS, extents);
    raw.set_flags(flags);
    Ok(())
}

fn too_large() -> Error {
    Error::Unsupported("converting how the blocks of a file as large as this are mapped".into())
}

/// `None` if direct pointers cannot represent the tree.
fn to_pointers(root: &Root) -> Result<Option<Root>> {
    let node = Node::new(root)?;
    let mut pointers = [0; ROOT_BYTES];
    if !node.is_leaf() || node.len() > 1 {
        return Ok(None);
    }
    let Some(extent) = node.extent(0) else {
        return Ok(Some(pointers));
    };
    let last = extent.start.0.saturating_add(extent.len.into());
    if extent.unwritten || extent.end() > DIRECT as u64 || last > u64::from(u32::MAX) {
        return Ok(None);
    }
    let places = pointers.as_chunks_mut::<POINTER_BYTES>().0.iter_mut();
    for (place, block) in places
        .skip(extent.block.0 as usize)
        .zip(extent.start.0..last)
    {
        *place = (block as u32).to_le_bytes();
    }
    Ok(Some(pointers))
}

/// `None` if there are indirect blocks, or more extents than fit in the inode.
fn to_extents(root: &Root) -> Option<Root> {
    let pointers: Vec<u32> = root
        .as_chunks::<POINTER_BYTES>()
        .0
        .iter()
        .map(|bytes| u32::from_le_bytes(*bytes))
        .collect();
    let (direct, below) = pointers.split_at_checked(DIRECT)?;
    if below.iter().any(|block| *block != 0) {
        return None;
    }
    let mut runs: Vec<Extent> = Vec::new();
    for (at, start) in (0..).zip(direct).filter(|(_, start)| **start != 0) {
        let start = FsBlock((*start).into());
        match runs.last_mut() {
            Some(run)
                if run.end() == u64::from(at)
                    && run.start.0 + u64::from(run.len) == start.0
                    && run.len < MAX_LEN =>
            {
                run.len += 1;
            }
            _ => runs.push(Extent {
                block: FileBlock(at),
                len: 1,
                start,
                unwritten: false,
            }),
        }
    }
    let mut bytes = [0; ROOT_BYTES];
    let mut node = NodeMut::init(&mut bytes, 0).ok()?;
    for (at, run) in runs.into_iter().enumerate() {
        if !node.insert_extent(at, run) {
            return None;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers(blocks: &[(usize, u32)]) -> Root {
        let mut root = [0; ROOT_BYTES];
        for (at, block) in blocks {
            root.as_chunks_mut::<POINTER_BYTES>().0[*at] = block.to_le_bytes();
        }
        root
    }

    #[test]
    fn small_maps_convert_both_ways() {
        for blocks in [
            &[][..],
            &[(0, 100)],
            &[(0, 100), (1, 101), (2, 102)],
            &[(3, 9), (4, 10)],
            &[(11, 7)],
        ] {
            let indirect = pointers(blocks);
            let extents = to_extents(&indirect).unwrap();
            assert_eq!(to_pointers(&extents).unwrap(), Some(indirect), "{blocks:?}");
        }
    }

    #[test]
    fn larger_maps_are_not_converted() {
        for blocks in [
            &[(12, 5)][..],
            &[(14, 5)],
            &[(0, 1), (2, 5), (4, 9), (6, 20), (8, 30)],
        ] {
            assert_eq!(to_extents(&pointers(blocks)), None, "{blocks:?}");
        }
        let leaf = |extent: Extent| {
            let mut root = [0; ROOT_BYTES];
            assert!(
                NodeMut::init(&mut root, 0)
                    .unwrap()
                    .insert_extent(0, extent)
            );
            root
        };
        let extent = |block, len, unwritten| Extent {
            block: FileBlock(block),
            len,
            start: FsBlock(1000),
            unwritten,
        };
        assert!(to_pointers(&leaf(extent(0, 12, false))).unwrap().is_some());
        for too_much in [
            extent(0, 13, false),
            extent(12, 1, false),
            extent(0, 1, true),
        ] {
            assert_eq!(to_pointers(&leaf(too_much)).unwrap(), None, "{too_much:?}");
        }
        let two = to_extents(&pointers(&[(0, 5), (2, 9)])).unwrap();
        assert_eq!(to_pointers(&two).unwrap(), None);
    }
}
