//! All blocks of a mapping that has few runs, and the mapping without them: for a file that is emptied while the disk still
//! shows what it held ([`crate::emptied`]).

use throughline_extfmt::{FileBlock, FsBlock, InodeImage};

use super::tree::View;
use super::{Format, Kind, extents, indirect, look};
use crate::error::Result;
use crate::inode::Inode;
use crate::inode::Inodes;

/// All blocks of a mapping.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// First block and length of each run of data, written or not.
    pub(crate) data: Vec<(FsBlock, u32)>,
    /// Tables, or nodes of the tree.
    pub(crate) nodes: Vec<FsBlock>,
}

impl Survey {
    /// Blocks in all.
    pub(crate) fn blocks(&self) -> u64 {
        let data = self.data.iter().map(|(_, len)| u64::from(*len));
        data.sum::<u64>().saturating_add(self.nodes.len() as u64)
    }
}

/// The blocks of an inode's mapping; `None` where there are more runs, or nodes, than `most`, or blocks that the mapping up to
/// the file's `size` does not lead to. Takes the mapping lock shared.
///
/// # Errors
/// Those of reading the mapping; `Corrupt` where it cannot be.
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
    let mut found = Survey {
        data: Vec::new(),
        nodes,
    };
    let mut at = 0;
    while at < end {
        let left = u32::try_from(end - at).unwrap_or(u32::MAX);
        let piece = look(&view, FileBlock(at as u32), left)?;
        if let Kind::Data(start) | Kind::Unwritten(start) = piece.kind {
            if found.data.len() == most {
                return Ok(None);
            }
            found.data.push((start, piece.len_blocks));
        }
        at += u64::from(piece.len_blocks);
    }
    for (start, len) in &found.data {
        fs.check_data_range(*start, (*len).into())?;
    }
    for node in &found.nodes {
        fs.check_data_range(*node, 1)?;
    }
    let raw = inode.raw.read();
    let attributes = u64::from(raw.file_acl(&fs.geo) != FsBlock(0));
    let counted = raw.blocks_512(&fs.geo) / u64::from(fs.geo.block_bytes / 512);
    let is_all = counted == found.blocks() + attributes;
    // Behind the end of an indirect map nobody has looked.
    Ok((view.format == Format::Extents || is_all).then_some(found))
}

/// Makes the mapping empty, its size 0, and counts `sectors` off the inode, in memory; the mapping lock is held exclusively.
/// `keep` gets the image as it was, before anybody can store the new one.
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
    debug_assert!(is_counted, "fewer blocks than before can be counted");
    raw.set_size_bytes(0);
    inode.mapping.set_known_size(Some(0));
}
