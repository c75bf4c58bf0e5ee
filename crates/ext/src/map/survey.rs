//! Lists all blocks of a mapping. Lists those of a small one, and empties it: for a file that is truncated
//! while the disk still has its old contents ([`crate::emptied`]).

use throughline_extfmt::extent::Extent;
use throughline_extfmt::{FileBlock, FsBlock, Geometry, InodeImage};

use super::tree::View;
use super::{Format, Kind, clusters, extents, indirect, look};
use crate::error::Result;
use crate::inode::Inode;
use crate::inode::Inodes;

/// A part of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Blocks of the file.
    Data(Extent),
    /// An indirect table or a tree node.
    Node(FsBlock),
}

/// Passes all of an inode's mapping to `visit`, a node before what is below it. Takes the mapping lock
/// shared. On a damaged volume, a block may be visited several times: `visit` must end that.
///
/// # Errors
/// Errors of reading the mapping, and of `visit`; `Corrupt` if it is invalid.
pub(crate) fn each_piece(
    fs: &Inodes,
    inode: &Inode,
    mut visit: impl FnMut(Piece) -> Result<()>,
) -> Result<()> {
    let _map = inode.map_shared();
    let view = View::new(fs, inode);
    match view.format {
        Format::Extents => extents::walk(&view, &mut visit),
        Format::Indirect => indirect::walk(&view, fs.geo.block_bytes, &mut visit),
        Format::None => Ok(()),
    }
    .map_err(|e| e.in_inode(inode.ino))
}

/// All blocks of a mapping.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// First block and length of each run, written or unwritten; with `bigalloc`, of the clusters that the
    /// file has.
    pub(crate) data: Vec<(FsBlock, u32)>,
    /// Indirect tables or tree nodes.
    pub(crate) nodes: Vec<FsBlock>,
}

impl Survey {
    /// Total number of blocks. A node has a cluster of its own.
    pub(crate) fn blocks(&self, geo: &Geometry) -> u64 {
        let data = self.data.iter().map(|(_, len)| u64::from(*len));
        let nodes = (self.nodes.len() as u64) << geo.cluster_ratio_log;
        data.sum::<u64>().saturating_add(nodes)
    }
}

/// The blocks of an inode's mapping. `None` if it has more than `most` runs or nodes, or blocks that the
/// mapping up to `size` does not reach. Takes the mapping lock shared.
///
/// # Errors
/// Errors of reading the mapping; `Corrupt` if it is invalid.
pub(crate) fn survey(fs: &Inodes, inode: &Inode, size: u64, most: usize) -> Result<Option<Survey>> {
    let _map = inode.map_shared();
    let view = View::new(fs, inode);
    let (nodes, end) = match view.format {
        Format::Extents => (extents::nodes(&view, most)?, extents::END),
        Format::Indirect => {
            let blocks = size.div_ceil(fs.geo.block_bytes.into());
            (indirect::tables(&view, most)?, blocks.min(extents::END))
        }
        Format::None => (None, 0),
    };
    let Some(nodes) = nodes else {
        return Ok(None);
    };
    let mut extents: Vec<Extent> = Vec::new();
    let mut at = 0;
    while at < end {
        let left = u32::try_from(end - at).unwrap_or(u32::MAX);
        let piece = look(&view, FileBlock(at as u32), left)?;
        if let Kind::Data(start) | Kind::Unwritten(start) = piece.kind {
            if extents.len() == most {
                return Ok(None);
            }
            extents.push(Extent {
                block: FileBlock(at as u32),
                len: piece.len_blocks,
                start,
                unwritten: false,
            });
        }
        at += u64::from(piece.len_blocks);
    }
    let found = Survey {
        data: clusters::whole(fs, extents.into_iter()).map_err(|e| e.in_inode(inode.ino))?,
        nodes,
    };
    for (start, len) in &found.data {
        fs.check_data_range(*start, (*len).into())?;
    }
    for node in &found.nodes {
        fs.check_data_range(*node, 1)?;
    }
    let raw = inode.raw.read();
    let attributes = u64::from(raw.file_acl(&fs.geo) != FsBlock(0));
    let counted = raw.blocks_512(&fs.geo) / u64::from(fs.geo.block_bytes / 512);
    let is_all = counted == found.blocks(&fs.geo) + attributes;
    // An indirect map was not searched past the end of the file.
    Ok((view.format == Format::Extents || is_all).then_some(found))
}

/// Empties the mapping in memory: sets the size to 0 and subtracts `sectors` from the inode's count. The
/// mapping lock is held exclusively. `keep` gets the old image before the new one can be stored.
pub(crate) fn empty(fs: &Inodes, inode: &Inode, sectors: u64, keep: impl FnOnce(&InodeImage)) {
    inode.mapping.changed();
    let mut raw = inode.raw.write();
    keep(&raw);
    *raw.i_block_mut() = match Format::of(&raw) {
        Format::Extents => extents::empty_root(),
        Format::Indirect | Format::None => [0; super::store::ROOT_BYTES],
    };
    let left = raw.blocks_512(&fs.geo).saturating_sub(sectors);
    let is_counted = raw.set_blocks_512(&fs.geo, left);
    debug_assert!(
        is_counted,
        "a smaller block count than before fits its field"
    );
    raw.set_size_bytes(0);
    inode.mapping.set_known_size(Some(0));
}
