//! Where bitmaps and inode tables are.
//!
//! - Without `flex_bg`, each group holds its own: after the superblock copy and the descriptors, the bitmaps,
//!   then the table. With a RAID stride, the bitmaps of successive groups are shifted against one another, so
//!   that they are not all on one disk.
//! - With `flex_bg`, those of all groups of a flex group are side by side at its start, kind by kind: reading
//!   many bitmaps is one sequential read, and the groups after the first are free for large files.
//! - `packed_meta_blocks` treats the volume as one flex group: everything is at its beginning.

use throughline_extfmt::features::Incompat;
use throughline_extfmt::{FsBlock, Geometry, GroupDesc, GroupNumber};
use zerocopy::FromZeros;

use super::space::Space;
use crate::error::{Error, Result};

/// Places the metadata of the groups from `first` on, and adds it to `space`. With `packed`, all of it is
/// together.
pub(crate) fn place(
    geo: &Geometry,
    first: u32,
    packed: bool,
    stride: u32,
    space: &mut Space,
) -> Result<Vec<GroupDesc>> {
    for group in (first..geo.groups).map(GroupNumber) {
        let start = geo.group_first_block(group).0;
        // A boot block before the primary superblock belongs to no one.
        space.add(start..start + u64::from(geo.fixed_blocks(group)));
    }
    let flex = match geo.incompat.contains(Incompat::FLEX_BG) {
        false => 1,
        true if packed => geo.groups,
        true => 1u32
            .checked_shl(geo.log_groups_per_flex)
            .unwrap_or(geo.groups),
    };
    let mut descs = vec![GroupDesc::new_zeroed(); (geo.groups - first) as usize];
    let mut at = first;
    while at < geo.groups {
        let count = (flex - at % flex).min(geo.groups - at);
        let own = &mut descs[(at - first) as usize..][..count as usize];
        match own {
            [only] if flex == 1 => place_own(geo, stride, at, space, only)?,
            own => place_flex(geo, at, flex, space, own)?,
        }
        at += count;
    }
    Ok(descs)
}

/// Places the metadata of a flex group from `first` on. It has `flex` groups, unless the volume ends in it or
/// it existed in part.
fn place_flex(
    geo: &Geometry,
    first: u32,
    flex: u32,
    space: &mut Space,
    descs: &mut [GroupDesc],
) -> Result<()> {
    let from = geo.group_first_block(GroupNumber(first)).0;
    // A group that is alone leaves room for the bitmaps of those that may be added to it.
    let spare = match descs.len() {
        1 => u64::from(flex) - 1,
        _ => 0,
    };
    let mut at = from;
    for desc in descs.iter_mut() {
        at = take(geo, space, from, at, 1)?;
        desc.set_block_bitmap(at);
        at += 1;
    }
    at = if spare > 0 { at + spare } else { from };
    for desc in descs.iter_mut() {
        at = take(geo, space, from, at, 1)?;
        desc.set_inode_bitmap(at);
        at += 1;
    }
    at = if spare > 0 { at + spare } else { from };
    let table = u64::from(geo.inode_table_blocks);
    for desc in descs.iter_mut() {
        at = take(geo, space, from, at, table)?;
        desc.set_inode_table(at);
        at += table;
    }
    Ok(())
}

/// Takes `len` blocks at or after `at`; if there is no such run up to the end of the volume, at or after
/// `from`.
fn take(geo: &Geometry, space: &mut Space, from: u64, at: u64, len: u64) -> Result<u64> {
    let found = space
        .first_fit(at, geo.blocks, len)
        .or_else(|| space.first_fit(from, geo.blocks, len))
        .or_else(|| space.first_fit(geo.first_data_block.0, geo.blocks, len))
        .ok_or_else(|| no_room(geo))?;
    space.add(found..found + len);
    Ok(found)
}

/// Places the metadata of a group in the group itself.
fn place_own(
    geo: &Geometry,
    stride: u32,
    group: u32,
    space: &mut Space,
    desc: &mut GroupDesc,
) -> Result<()> {
    let number = GroupNumber(group);
    let first = geo.group_first_block(number).0;
    let end = first + u64::from(geo.group_blocks(number));
    let fixed = first + u64::from(geo.fixed_blocks(number));
    let table = u64::from(geo.inode_table_blocks);
    let mut from = fixed;
    if stride > 0 && fixed + table < end {
        from = fixed + table;
        from += u64::from(stride) * u64::from(group) % (end - from);
    }
    let mut take = |from: u64, len: u64| {
        let found = space
            .first_fit(from, end, len)
            .or_else(|| space.first_fit(first, end, len))
            .ok_or_else(|| no_room(geo))?;
        space.add(found..found + len);
        Ok::<_, Error>(found)
    };
    desc.set_block_bitmap(take(from, 1)?);
    desc.set_inode_bitmap(take(from, 1)?);
    desc.set_inode_table(take(first, table)?);
    Ok(())
}

pub(crate) fn no_room(geo: &Geometry) -> Error {
    Error::invalid(format!(
        "the metadata does not fit {} blocks of {} bytes: fewer inodes (-N, -i), a smaller journal (-J \
         size=), or a larger volume",
        geo.blocks, geo.block_bytes
    ))
}

/// The blocks of a group that its own metadata takes: all that may be in use in a group whose bitmap is left
/// uninitialised.
pub(crate) fn own_blocks(geo: &Geometry, group: GroupNumber, desc: &GroupDesc) -> u64 {
    let first = geo.group_first_block(group).0;
    let end = first + u64::from(geo.group_blocks(group));
    let inside = |block: FsBlock, len: u64| {
        let (from, to) = (block.0.max(first), (block.0 + len).min(end));
        to.saturating_sub(from)
    };
    u64::from(geo.fixed_blocks(group))
        + inside(desc.block_bitmap(), 1)
        + inside(desc.inode_bitmap(), 1)
        + inside(desc.inode_table(), geo.inode_table_blocks.into())
}
