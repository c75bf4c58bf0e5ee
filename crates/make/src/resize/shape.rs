//! The numbers of a volume that has grown.

use throughline_extfmt::features::{Compat, Incompat};
use throughline_extfmt::{Geometry, GroupNumber, Superblock};

use crate::error::{Error, Result};

/// A last group is only made if this many blocks remain in it beside its metadata, as when a volume is made.
const MIN_LAST_GROUP: u32 = 50;

/// The superblock and the geometry of a volume of `blocks` blocks. The counts of free blocks and inodes are
/// still those of the old volume.
///
/// # Errors
/// `Invalid`: more blocks or inodes than the format allows.
pub(super) fn grown(
    sb: &Superblock,
    old: &Geometry,
    mut blocks: u64,
) -> Result<(Superblock, Geometry)> {
    check_limits(old, blocks)?;
    loop {
        let new = with_blocks(sb, old, blocks)?;
        let geo = Geometry::new(&new)?;
        match small_last_group(&geo) {
            Some(rest) if geo.groups > old.groups => blocks -= u64::from(rest),
            _ => return Ok((new, geo)),
        }
    }
}

/// The blocks of the last group, if it would hold too little beside its metadata.
fn small_last_group(geo: &Geometry) -> Option<u32> {
    let last = GroupNumber(geo.groups - 1);
    let rest = geo.group_blocks(last);
    let needed = 2 + geo.inode_table_blocks + geo.fixed_blocks(last) + MIN_LAST_GROUP;
    (rest < geo.blocks_per_group && rest < needed).then_some(rest)
}

fn check_limits(old: &Geometry, blocks: u64) -> Result<()> {
    let most = match old.incompat.contains(Incompat::BIT64) {
        true => 1 << 48,
        false => u64::from(u32::MAX),
    };
    if blocks > most {
        return Err(Error::invalid(format!(
            "{blocks} blocks are too many: at most {most} of {} bytes{}",
            old.block_bytes,
            match most {
                0..=0xFFFF_FFFF => " without the feature 64bit ('resize2fs -b' adds it)",
                _ => "",
            }
        )));
    }
    let groups = (blocks - old.first_data_block.0).div_ceil(u64::from(old.blocks_per_group));
    let per_group = u64::from(old.inodes_per_group);
    if groups.saturating_mul(per_group) > u64::from(u32::MAX) {
        let all = u64::from(u32::MAX) / per_group * u64::from(old.blocks_per_group);
        return Err(Error::invalid(format!(
            "{blocks} blocks would have more than 2^32 inodes, {per_group} in each group: at most {all} blocks"
        )));
    }
    Ok(())
}

/// The superblock for exactly `blocks` blocks.
fn with_blocks(sb: &Superblock, old: &Geometry, blocks: u64) -> Result<Superblock> {
    let (mut new, groups) = counted(sb, old, blocks)?;
    set_descriptors(&mut new, old, groups)?;
    if old.compat.contains(Compat::SPARSE_SUPER2) {
        new.s_backup_bgs = backups(old, groups).map(Into::into);
    }
    Ok(new)
}

/// The superblock with the counts that follow from `blocks` blocks, and the number of groups.
fn counted(sb: &Superblock, old: &Geometry, blocks: u64) -> Result<(Superblock, u32)> {
    let mut new = *sb;
    let groups = (blocks - old.first_data_block.0).div_ceil(u64::from(old.blocks_per_group));
    let groups =
        u32::try_from(groups).map_err(|_| Error::invalid("more than 2^32 block groups"))?;
    new.s_inodes_count.set(groups * old.inodes_per_group);
    let reserved = u128::from(sb.r_blocks_count()) * u128::from(blocks) / u128::from(old.blocks);
    new.s_blocks_count_lo.set(blocks as u32);
    new.s_r_blocks_count_lo.set(reserved as u32);
    if old.incompat.contains(Incompat::BIT64) {
        new.s_blocks_count_hi.set((blocks >> 32) as u32);
        new.s_r_blocks_count_hi.set((reserved >> 32) as u32);
    }
    Ok((new, groups))
}

/// Where the descriptors of `groups` groups are: in the blocks that are in use, then in reserved ones. If
/// these do not suffice, all are used, and what follows is in meta groups.
fn set_descriptors(sb: &mut Superblock, old: &Geometry, groups: u32) -> Result<()> {
    if old.first_meta_bg.is_some() {
        return Ok(());
    }
    let needed = groups.div_ceil(old.descs_per_block());
    let added = needed.saturating_sub(old.desc_blocks);
    let reserved = u32::from(old.reserved_gdt_blocks);
    if added <= reserved {
        sb.s_reserved_gdt_blocks.set((reserved - added) as u16);
        return Ok(());
    }
    if sb.is_rev0() {
        return Err(Error::unsupported(
            "more group descriptors than fit the blocks that are there, in a volume of revision 0",
        ));
    }
    sb.s_reserved_gdt_blocks.set(0);
    sb.s_first_meta_bg.set(old.desc_blocks + reserved);
    let (compat, incompat) = (sb.compat(), sb.incompat());
    let compat = compat - Compat::RESIZE_INODE;
    sb.s_feature_compat.set(compat.bits());
    let incompat = incompat | Incompat::META_BG;
    sb.s_feature_incompat.set(incompat.bits());
    Ok(())
}

/// The groups with a backup (`sparse_super2`). One that exists stays where it is: moving it would need free
/// blocks at the start of the last group. A volume that had too few groups for two gets what it lacks.
fn backups(old: &Geometry, groups: u32) -> [u32; 2] {
    let last = groups - 1;
    match old.backup_bgs {
        [0, 0] if old.groups == 1 && last > 0 => [1, if last > 1 { last } else { 0 }],
        [1, 0] if old.groups == 2 && last > 1 => [1, last],
        found => found,
    }
}

/// The superblock and the geometry of a volume of `blocks` blocks, fewer than it has. The counts of free
/// blocks and inodes are still those of the larger volume. A last group that would hold little beside its
/// metadata is left out.
///
/// # Errors
/// `Invalid`: too few blocks for a volume.
pub(super) fn shrunk(
    sb: &Superblock,
    old: &Geometry,
    mut blocks: u64,
) -> Result<(Superblock, Geometry)> {
    loop {
        if blocks <= old.first_data_block.0 + 1 {
            return Err(Error::invalid(format!("{blocks} blocks are too few")));
        }
        let new = with_fewer_blocks(sb, old, blocks)?;
        let geo = Geometry::new(&new)?;
        match small_last_group(&geo) {
            Some(rest) => blocks -= u64::from(rest),
            None => return Ok((new, geo)),
        }
    }
}

fn with_fewer_blocks(sb: &Superblock, old: &Geometry, blocks: u64) -> Result<Superblock> {
    let (mut new, groups) = counted(sb, old, blocks)?;
    let needed = groups.div_ceil(old.descs_per_block());
    if let Some(first) = old.first_meta_bg {
        new.s_first_meta_bg.set(first.min(needed));
    } else if old.compat.contains(Compat::RESIZE_INODE) {
        // What the descriptors no longer need is in reserve again.
        let reserved = u32::from(old.reserved_gdt_blocks) + old.desc_blocks - needed;
        let most = old.block_bytes / 4;
        new.s_reserved_gdt_blocks.set(reserved.min(most) as u16);
    }
    if old.compat.contains(Compat::SPARSE_SUPER2) {
        let kept = old
            .backup_bgs
            .map(|group| if group < groups { group } else { 0 });
        new.s_backup_bgs = kept.map(Into::into);
    }
    let overhead = sb.s_overhead_clusters.get();
    if overhead != 0 {
        let geo = Geometry::new(&new)?;
        let less = fixed_metadata(old).saturating_sub(fixed_metadata(&geo));
        let overhead = u64::from(overhead).saturating_sub(less);
        new.s_overhead_clusters.set(overhead as u32);
    }
    Ok(new)
}

/// The blocks of superblocks, descriptors, bitmaps and inode tables.
pub(super) fn fixed_metadata(geo: &Geometry) -> u64 {
    let fixed = (0..geo.groups).map(|group| u64::from(geo.fixed_blocks(GroupNumber(group))));
    fixed.sum::<u64>() + u64::from(geo.groups) * (2 + u64::from(geo.inode_table_blocks))
}
