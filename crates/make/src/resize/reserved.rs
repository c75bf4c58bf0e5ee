//! The resize inode, which owns the descriptor blocks that are in reserve. What it maps follows from the
//! geometry, so it is written anew; only its double-indirect block stays where it is.

use std::ops::Range;

use throughline_block::Disk;
use throughline_extfmt::features::Compat;
use throughline_extfmt::group_desc;
use throughline_extfmt::{FsBlock, Geometry, GroupNumber, InodeImage, InodeNumber};

use super::table::Table;
use crate::error::{Error, Result};
use crate::plan::files::reserved_blocks;
use crate::writer::{Writer, read_bytes};

/// The pointer to the double-indirect block, in the inode.
const DOUBLE: usize = 13;

/// The resize inode of a volume.
pub(super) struct ResizeInode {
    inode: InodeImage,
    /// The block of the inode table, in bytes from the start, and the inode in it.
    block: u64,
    range: Range<usize>,
    double: u64,
}

impl ResizeInode {
    /// Reads it; `None` if the volume has none.
    ///
    /// # Errors
    /// `Damaged`; of the device.
    pub(super) fn read(disk: &Disk, geo: &Geometry) -> Result<Option<ResizeInode>> {
        if !geo.compat.contains(Compat::RESIZE_INODE) {
            return Ok(None);
        }
        let damaged = |why: String| Error::Damaged(format!("inode 7, the resize inode: {why}"));
        let block_bytes = u64::from(geo.block_bytes);
        let (group, index) = geo
            .inode_place(InodeNumber::RESIZE)
            .ok_or_else(|| damaged("it does not exist".to_owned()))?;
        let (desc_block, offset) = geo.desc_place(group);
        let descs = read_bytes(disk, desc_block.0 * block_bytes, geo.block_bytes as usize)?;
        let desc = group_desc::read_checked(geo, group, &descs, offset)
            .map_err(|why| Error::Damaged(why.to_string()))?;
        let (in_table, at) = geo.inode_in_table(index);
        let block = (desc.inode_table().0 + u64::from(in_table)) * block_bytes;
        let bytes = read_bytes(disk, block, geo.block_bytes as usize)?;
        let range = at..at + usize::from(geo.inode_bytes);
        let inode = InodeImage::read(&bytes[range.clone()])
            .and_then(|inode| {
                inode.verify_checksum(geo, InodeNumber::RESIZE)?;
                Ok(inode)
            })
            .map_err(|why| damaged(why.to_string()))?;
        let double = u64::from(inode.base().block_pointer(DOUBLE));
        let last =
            geo.group_first_block(GroupNumber(0)).0 + u64::from(geo.fixed_blocks(GroupNumber(0)));
        if double < last || !geo.holds_blocks(FsBlock(double), 1) {
            return Err(damaged(format!("its double-indirect block is {double}")));
        }
        Ok(Some(ResizeInode {
            inode,
            block,
            range,
            double,
        }))
    }

    /// Its double-indirect block.
    pub(super) fn double(&self) -> u64 {
        self.double
    }

    /// The blocks to write for the geometry `geo`, with their places in bytes. None for a volume that loses
    /// the feature: its inode is [cleared](cleared) later, because growing anew needs it.
    ///
    /// # Errors
    /// Of the device.
    pub(super) fn blocks(mut self, disk: &Disk, geo: &Geometry) -> Result<Vec<(u64, Vec<u8>)>> {
        let bytes = u64::from(geo.block_bytes);
        if !geo.compat.contains(Compat::RESIZE_INODE) {
            return Ok(Vec::new());
        }
        let (mut blocks, count) = reserved_blocks(geo, self.double);
        blocks.iter_mut().for_each(|(at, _)| *at *= bytes);
        let sectors = count << (geo.block_log - 9);
        if !self.inode.base_mut().set_blocks_512(geo, sectors) {
            return Err(Error::invalid("too many reserved descriptor blocks"));
        }
        self.inode.update_checksum(geo, InodeNumber::RESIZE);
        let mut table = read_bytes(disk, self.block, geo.block_bytes as usize)?;
        table[self.range].copy_from_slice(self.inode.as_bytes());
        blocks.push((self.block, table));
        Ok(blocks)
    }
}

/// Moves the double-indirect block of the resize inode of a closed volume to the block `place`, which is
/// marked as used. The old block stays so, and nobody owns it.
///
/// # Errors
/// `Damaged`; of the device.
pub fn move_block(disk: &Disk, geo: &Geometry, place: u64) -> Result<()> {
    let Some(mut inode) = ResizeInode::read(disk, geo)? else {
        return Ok(());
    };
    let bytes = u64::from(geo.block_bytes);
    let content = read_bytes(disk, inode.double * bytes, geo.block_bytes as usize)?;
    let mut out = Writer::new(disk, 0);
    out.put(place * bytes, &content)?;
    out.flush()?;
    disk.flush()?;
    let pointer = &mut inode.inode.i_block_mut()[4 * DOUBLE..][..4];
    pointer.copy_from_slice(&(place as u32).to_le_bytes());
    inode.inode.update_checksum(geo, InodeNumber::RESIZE);
    let at = inode.block + inode.range.start as u64;
    out.put(at, inode.inode.as_bytes())?;
    out.flush()?;
    Ok(disk.flush()?)
}

/// For a volume that lost the feature: the block of the inode table with the resize inode cleared, and its
/// place in bytes. `None` if the inode is clear already, or the volume has the feature.
///
/// # Errors
/// Of the device.
pub(super) fn cleared(
    disk: &Disk,
    geo: &Geometry,
    table: &Table,
) -> Result<Option<(u64, Vec<u8>)>> {
    let place = geo.inode_place(InodeNumber::RESIZE);
    let Some((group, index)) = place.filter(|_| !geo.compat.contains(Compat::RESIZE_INODE)) else {
        return Ok(None);
    };
    let (in_table, at) = geo.inode_in_table(index);
    let block = table.get(group).inode_table().0 + u64::from(in_table);
    let block = block * u64::from(geo.block_bytes);
    let mut bytes = read_bytes(disk, block, geo.block_bytes as usize)?;
    let range = at..at + usize::from(geo.inode_bytes);
    let mut clear = InodeImage::read(&vec![0; geo.inode_bytes.into()])?;
    clear.update_checksum(geo, InodeNumber::RESIZE);
    let is_clear = InodeImage::read(&bytes[range.clone()])
        .is_ok_and(|inode| inode.links_count() == 0 && inode.block_pointer(DOUBLE) == 0);
    if is_clear {
        return Ok(None);
    }
    bytes[range].copy_from_slice(clear.as_bytes());
    Ok(Some((block, bytes)))
}
