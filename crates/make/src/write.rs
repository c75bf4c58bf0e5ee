//! Carries out a plan: clears the target, then writes every block that is not zero, in ascending order and in
//! long writes.
//!
//! Invariant: on a target that can be found after a crash, each step is durable before the next. So a crash
//! leaves the old volume, none, or the new one, and never a superblock with the tables of another volume:
//! 1. the old superblock and its copies go ([`erase`]);
//! 2. the target is cleared, and all but superblocks is written;
//! 3. the superblocks are written.

use std::ops::Range;

use throughline_block::Disk;
use throughline_device::DeviceKind;
use throughline_extfmt::features::Incompat;
use throughline_extfmt::group_desc::{self, GroupFlags};
use throughline_extfmt::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, State};
use throughline_extfmt::{Geometry, GroupDesc, GroupNumber, Superblock};
use zerocopy::IntoBytes;

use crate::error::Result;
use crate::pack::inode::{Inline, TreeBlock};
use crate::pack::tree::NodeId;
use crate::plan::Plan;
use crate::writer::{Writer, read_bytes};

/// What is done with the old content of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clear {
    /// The target is a new file, which gets its name when it is complete.
    New,
    /// The target reads as zeros.
    Blank,
    /// All of it goes: holes in a file, discarded blocks of a device.
    All,
    /// What must be zero is zeroed, the rest is left as it is.
    Needed,
    /// Nothing but superblocks and descriptors is written.
    Nothing,
}

/// How a plan is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Where the volume begins, in bytes.
    pub(crate) offset: u64,
    pub(crate) clear: Clear,
    /// Whether the log of the journal may keep old content.
    pub(crate) lazy_journal: bool,
    /// Whether the inode tables may keep old content.
    pub(crate) lazy_itable: bool,
}

/// A part of the volume, in the order of its place.
#[derive(Clone, Copy)]
enum Part<'p> {
    Superblock(GroupNumber),
    /// A block of descriptors, and the group whose superblock it belongs to.
    Descs(u32),
    BlockBitmap(GroupNumber),
    InodeBitmap(GroupNumber),
    /// A block of an inode table: the group, and the block in the table.
    Inodes(GroupNumber, u32),
    Content(&'p [u8]),
    Tree(TreeBlock),
}

/// What the data pass found out, for the metadata that follows it.
#[derive(Default)]
pub(crate) struct Found {
    /// The bytes of files that are in their inodes.
    pub(crate) inline: Inline,
    /// Times of files after this are set to it.
    pub(crate) clamp: Option<u64>,
}

/// Clears the target for a plan whose data is written before [`write`], which then finds it
/// [blank](Clear::Blank).
///
/// # Errors
/// Of the device.
pub(crate) fn clear_first(plan: &Plan<'_>, disk: &Disk, how: How) -> Result<()> {
    let mut out = Writer::new(disk, how.offset);
    clear(plan, &mut out, how)?;
    out.flush()
}

/// Writes a planned volume.
///
/// # Errors
/// Of the device.
pub(crate) fn write(plan: &Plan<'_>, disk: &Disk, how: How, found: &Found) -> Result<()> {
    let mut out = Writer::new(disk, how.offset);
    clear(plan, &mut out, how)?;
    let bytes = plan.geo.block_bytes;
    if how.clear != Clear::Nothing {
        // The boot block: what was there before would be mistaken for a boot loader, or for another file
        // system.
        out.put(0, &[0; SUPERBLOCK_OFFSET as usize])?;
    }
    let (supers, parts): (Vec<_>, Vec<_>) = parts(plan, how.clear == Clear::Nothing)
        .into_iter()
        .partition(|(_, part)| matches!(part, Part::Superblock(_)));
    let writes_bytes = (supers.len() + parts.len()) as u64 * u64::from(bytes);
    let mut superblock = plan.superblock;
    superblock.s_kbytes_written.set(writes_bytes >> 10);
    let table = all_descs(plan);
    let mut block = vec![0; bytes as usize];
    let mut directory = None;
    for (place, part) in parts {
        let at = place * u64::from(bytes);
        match part {
            // Below.
            Part::Superblock(_) => {}
            Part::Descs(index) => {
                let from = index as usize * bytes as usize;
                out.put(at, &table[from..][..bytes as usize])?;
            }
            Part::BlockBitmap(group) => {
                plan.block_bitmap(group, &mut block);
                out.put(at, &block)?;
            }
            Part::InodeBitmap(group) => {
                plan.inode_bitmap(group, &mut block);
                out.put(at, &block)?;
            }
            Part::Inodes(group, index) => {
                inodes(plan, group, index, found, &mut block)?;
                out.put(at, &block)?;
            }
            Part::Content(content) => out.put(at, content)?,
            Part::Tree(made) => {
                make(plan, made, &mut directory, &mut block)?;
                out.put(at, &block)?;
            }
        }
    }
    if how.clear != Clear::New {
        out.settle()?;
    }
    for (place, part) in supers {
        if let Part::Superblock(group) = part {
            match group.0 {
                0 => {
                    superblock.update_checksum();
                    out.put(SUPERBLOCK_OFFSET, superblock.as_bytes())?;
                }
                _ => {
                    let block = backup(&superblock, group, bytes as usize);
                    out.put(place * u64::from(bytes), &block)?;
                }
            }
        }
    }
    out.finish()
}

/// Erases the superblock of the volume that is in the target, its copies in the first `len_bytes`, and what
/// is before it: a boot loader or a partition table. Returns when that is durable.
///
/// # Errors
/// Of the device.
pub(crate) fn erase(disk: &Disk, offset: u64, len_bytes: u64) -> Result<()> {
    let mut out = Writer::new(disk, offset);
    let all = SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64;
    out.put(0, &vec![0; all.min(len_bytes) as usize])?;
    for at in copies(disk, offset, len_bytes)? {
        out.put(at, &[0; SUPERBLOCK_BYTES])?;
    }
    out.finish()
}

/// Where the copies of the superblock of the volume in the target are, if it has one.
fn copies(disk: &Disk, offset: u64, len_bytes: u64) -> Result<Vec<u64>> {
    let end = len_bytes.min(disk.len_bytes().saturating_sub(offset));
    if end < SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64 {
        return Ok(Vec::new());
    }
    let found = read_bytes(disk, offset + SUPERBLOCK_OFFSET, SUPERBLOCK_BYTES)?;
    let Ok(geo) = Superblock::read(&found).and_then(|found| Geometry::new(&found)) else {
        return Ok(Vec::new());
    };
    let groups = geo.superblock_groups().skip(1);
    let places = groups.filter_map(|group| geo.superblock_block(group));
    let places = places.map(|at| at.0.saturating_mul(geo.block_bytes.into()));
    Ok(places
        .take_while(|at| at.saturating_add(SUPERBLOCK_BYTES as u64) <= end)
        .collect())
}

/// Every part that is written, in ascending order.
fn parts<'p>(plan: &'p Plan<'_>, only_supers: bool) -> Vec<(u64, Part<'p>)> {
    let geo = &plan.geo;
    let mut parts = Vec::new();
    for group in geo.superblock_groups() {
        parts.extend(
            geo.superblock_block(group)
                .map(|at| (at.0, Part::Superblock(group))),
        );
    }
    for index in 0..geo.desc_blocks {
        parts.push((geo.desc_block(index).0, Part::Descs(index)));
        let backups = geo.desc_block_backups(index);
        parts.extend(backups.into_iter().map(|at| (at.0, Part::Descs(index))));
    }
    if !only_supers {
        for (group, desc) in (0..).map(GroupNumber).zip(&plan.descs) {
            if !desc.flags().contains(GroupFlags::BLOCK_UNINIT) {
                parts.push((desc.block_bitmap().0, Part::BlockBitmap(group)));
            }
            if !desc.flags().contains(GroupFlags::INODE_UNINIT) {
                parts.push((desc.inode_bitmap().0, Part::InodeBitmap(group)));
            }
        }
        let mut last = None;
        for ino in plan.numbers() {
            let Some((group, index)) = geo.inode_place(throughline_extfmt::InodeNumber(ino)) else {
                continue;
            };
            let (block, _) = geo.inode_in_table(index);
            if last.replace((group, block)) != Some((group, block)) {
                let table = plan.descs[group.0 as usize].inode_table().0;
                parts.push((table + u64::from(block), Part::Inodes(group, block)));
            }
        }
        let content = plan.content.iter();
        parts.extend(content.map(|(at, bytes)| (*at, Part::Content(bytes))));
        let made = plan.tree.iter().flat_map(|tree| tree.blocks());
        parts.extend(made.map(|(at, block)| (at, Part::Tree(block))));
    }
    parts.sort_unstable_by_key(|(at, _)| *at);
    parts
}

/// A backup of the superblock, which knows its group, with zeros up to `len` bytes.
pub(crate) fn backup(superblock: &Superblock, group: GroupNumber, len: usize) -> Vec<u8> {
    let mut copy = *superblock;
    copy.s_block_group_nr.set(group.0 as u16);
    // It does not know whether the volume is clean.
    copy.set_state(State::empty());
    let incompat = copy.incompat() - Incompat::RECOVER;
    copy.s_feature_incompat.set(incompat.bits());
    copy.update_checksum();
    let mut block = copy.as_bytes().to_vec();
    block.resize(len, 0);
    block
}

/// The blocks of descriptors, one after the other.
fn all_descs(plan: &Plan<'_>) -> Vec<u8> {
    let bytes = plan.geo.block_bytes as usize;
    let mut table = vec![0; plan.geo.desc_blocks as usize * bytes];
    let size = usize::from(plan.geo.desc_bytes);
    // A descriptor does not cross blocks: its size divides theirs.
    for (group, place) in (0..plan.geo.groups).zip(table.chunks_exact_mut(size)) {
        let mut desc = plan.descs[group as usize];
        group_desc::write_with_checksum(&plan.geo, GroupNumber(group), &mut desc, place);
    }
    table
}

/// Fills a block of an inode table.
fn inodes(
    plan: &Plan<'_>,
    group: GroupNumber,
    index: u32,
    found: &Found,
    block: &mut [u8],
) -> Result<()> {
    block.fill(0);
    let size = usize::from(plan.geo.inode_bytes);
    let per_block = (block.len() / size) as u32;
    for (at, place) in (index * per_block..).zip(block.chunks_exact_mut(size)) {
        let ino = plan.geo.inode_at(group, at);
        if let Some(inode) = plan.inodes.get(&ino.0) {
            place.copy_from_slice(inode.as_bytes());
        } else if let Some(tree) = &plan.tree
            && let Some(inode) = tree.inode(&plan.geo, ino, found)?
        {
            place.copy_from_slice(inode.as_bytes());
        }
    }
    Ok(())
}

/// Makes a block of the tree. The blocks of a directory are made together, and kept in `directory` for those
/// that follow.
fn make(
    plan: &Plan<'_>,
    made: TreeBlock,
    directory: &mut Option<(NodeId, Vec<u8>)>,
    block: &mut [u8],
) -> Result<()> {
    let Some(tree) = &plan.tree else {
        return Ok(());
    };
    match made {
        TreeBlock::Attributes(node) => tree.attribute_block(&plan.geo, node, block)?,
        TreeBlock::Link(node) => tree.link_block(node, block),
        TreeBlock::Directory(node, at) => {
            let blocks = match directory {
                Some((known, blocks)) if *known == node => blocks,
                _ => &mut directory.insert((node, tree.directory(&plan.geo, node)?)).1,
            };
            block.copy_from_slice(&blocks[at as usize * block.len()..][..block.len()]);
        }
    }
    Ok(())
}

/// Clears what must read as zeros.
fn clear(plan: &Plan<'_>, out: &mut Writer<'_>, how: How) -> Result<()> {
    let geo = &plan.geo;
    let bytes = u64::from(geo.block_bytes);
    let all = 0..geo.blocks * bytes;
    let is_file = out.disk.info().kind == DeviceKind::RegularFile;
    if !matches!(how.clear, Clear::New | Clear::Blank | Clear::Nothing) {
        erase(out.disk, how.offset, all.end)?;
    }
    match how.clear {
        Clear::New | Clear::Blank | Clear::Nothing => return Ok(()),
        // A hole reads as zeros.
        Clear::All if is_file && out.discard(all.clone())? => return Ok(()),
        Clear::All => {
            out.discard(all)?;
        }
        Clear::Needed => {}
    }
    // With checksums of groups, what is beyond the inodes in use is initialised by the first mount.
    let is_lazy = how.lazy_itable && geo.has_group_csum();
    let is_written =
        |desc: &&GroupDesc| !is_lazy || !desc.flags().contains(GroupFlags::INODE_UNINIT);
    let tables = plan.descs.iter().filter(is_written).map(|desc| {
        let first = desc.inode_table().0;
        first..first + u64::from(geo.inode_table_blocks)
    });
    zero_all(tables, bytes, out)?;
    if !how.lazy_journal {
        zero_all(plan.zeroed.iter().cloned(), bytes, out)?;
    }
    // Signatures of other file systems and volume managers, at the end and near the beginning.
    let end = geo.blocks * bytes;
    let edge = (64 << 10).min(end / 2);
    out.zero(end - edge..end)?;
    out.zero(0..edge)
}

/// Zeroes runs of blocks; adjacent ones are joined.
fn zero_all(
    runs: impl Iterator<Item = Range<u64>>,
    bytes: u64,
    out: &mut Writer<'_>,
) -> Result<()> {
    let mut open: Option<Range<u64>> = None;
    for run in runs {
        open = match open {
            Some(before) if before.end == run.start => Some(before.start..run.end),
            Some(before) => {
                out.zero(before.start * bytes..before.end * bytes)?;
                Some(run)
            }
            None => Some(run),
        };
    }
    match open {
        Some(run) => out.zero(run.start * bytes..run.end * bytes),
        None => Ok(()),
    }
}
