//! What follows from the size of a volume, and may lag behind it after an interruption: the copies of the
//! superblock, and the resize inode. Written only where it differs.

use throughline_block::Disk;
use throughline_extfmt::features::Compat;
use throughline_extfmt::superblock::SUPERBLOCK_BYTES;
use throughline_extfmt::{FsBlock, Geometry, Superblock};

use super::reserved::ResizeInode;
use super::superblock;
use crate::error::Result;
use crate::write::backup;
use crate::writer::{Writer, read_bytes};

/// Makes copies and resize inode agree with the superblock of a volume that is closed.
///
/// # Errors
/// `Damaged`; of the device.
pub fn tidy(disk: &Disk) -> Result<()> {
    let sb = superblock(disk)?;
    let geo = Geometry::new(&sb)?;
    let mut out = Writer::new(disk, 0);
    for group in geo.superblock_groups().skip(1) {
        let Some(FsBlock(at)) = geo.superblock_block(group) else {
            continue;
        };
        let at = at * u64::from(geo.block_bytes);
        let found = Superblock::read(&read_bytes(disk, at, SUPERBLOCK_BYTES)?);
        if found.is_ok_and(|found| has_size_of(&found, &sb)) {
            continue;
        }
        out.put(at, &backup(&sb, group, SUPERBLOCK_BYTES))?;
    }
    if geo.compat.contains(Compat::RESIZE_INODE)
        && let Some(inode) = ResizeInode::read(disk, &geo)?
    {
        for (at, block) in inode.blocks(disk, &geo)? {
            if read_bytes(disk, at, block.len())? != block {
                out.put(at, &block)?;
            }
        }
    }
    out.flush()?;
    Ok(disk.flush()?)
}

/// The first copy of the superblock of a volume, and its block.
pub fn first_copy(sb: &Superblock) -> Result<Option<(FsBlock, Vec<u8>)>> {
    let geo = Geometry::new(sb)?;
    let group = geo.superblock_groups().nth(1);
    let found = group.and_then(|group| Some((group, geo.superblock_block(group)?)));
    Ok(found.map(|(group, at)| (at, backup(sb, group, geo.block_bytes as usize))))
}

fn has_size_of(found: &Superblock, sb: &Superblock) -> bool {
    let numbers = |sb: &Superblock| {
        (
            sb.has_magic(),
            sb.blocks_count(),
            sb.s_inodes_count.get(),
            sb.s_reserved_gdt_blocks.get(),
            sb.s_first_meta_bg.get(),
            sb.s_backup_bgs.map(|group| group.get()),
            sb.s_uuid,
        )
    };
    numbers(found) == numbers(sb)
}
