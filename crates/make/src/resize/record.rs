//! The record of a growth under way: what is left to do once the superblock has the new size. It is in the
//! last block of the volume, which is free until the growth is complete.

use std::ops::Range;

use throughline_block::Disk;
use throughline_extfmt::checksum::{CRC32C_INIT, crc32_be, crc32c};
use throughline_extfmt::superblock::SUPERBLOCK_OFFSET;
use throughline_extfmt::{Geometry, GroupDesc, GroupNumber, Superblock};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::superblock;
use crate::error::Result;
use crate::writer::read_bytes;

const MAGIC: [u8; 16] = *b"throughline-grow";
/// The bytes of the superblock that a disk writes at once. They hold all numbers of the size.
const FIRST_SECTOR: usize = 512;
/// The runs of blocks that a growth frees: those added to the last group, and one of the resize inode.
pub(super) const FREED: usize = 2;

/// A run of blocks of one group that becomes free, and the group's descriptor before that.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawFreed {
    start: U64,
    len: U64,
    desc: [u8; 64],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 16],
    uuid: [u8; 16],
    old_blocks: U64,
    blocks: U64,
    /// Sums of the first sector of the superblock: as of step 3, and of step 5.
    begun: U32,
    ended: U32,
    /// What changes in the second sector.
    overhead: U32,
    backup_bgs: [U32; 2],
    freed: [RawFreed; FREED],
    sum: U32,
}

/// A run of blocks of one group that becomes free.
#[derive(Clone, Debug)]
pub(super) struct Freed {
    pub(super) run: Range<u64>,
    /// The descriptor of its group before that.
    pub(super) desc: GroupDesc,
}

/// A growth of which the superblock has the new size.
#[derive(Clone, Debug)]
pub struct Interrupted {
    /// The superblock, as step 3 wrote it.
    pub(super) superblock: Superblock,
    pub(super) old_blocks: u64,
    pub(super) freed: Vec<Freed>,
    /// Only the superblock of step 5 is left to write.
    pub(super) is_ending: bool,
}

impl Interrupted {
    /// The superblock, with the new size.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }
}

/// Of the first sector. Not a crc32c: that is the same for all superblocks with the same second sector.
fn sum(sb: &Superblock) -> u32 {
    crc32_be(!0, &sb.as_bytes()[..FIRST_SECTOR])
}

/// The place of the record of a volume, in bytes.
pub(super) fn place(geo: &Geometry) -> u64 {
    (geo.blocks - 1) * u64::from(geo.block_bytes)
}

/// The record, as a block.
pub(super) fn block(
    begun: &Superblock,
    ended: &Superblock,
    old: &Geometry,
    freed: &[Freed],
) -> Vec<u8> {
    let mut raw = Raw::new_zeroed();
    raw.magic = MAGIC;
    raw.uuid = begun.s_uuid;
    raw.old_blocks.set(old.blocks);
    raw.blocks.set(begun.blocks_count());
    raw.begun.set(sum(begun));
    raw.ended.set(sum(ended));
    raw.overhead = begun.s_overhead_clusters;
    raw.backup_bgs = begun.s_backup_bgs;
    for (place, one) in raw.freed.iter_mut().zip(freed) {
        place.start.set(one.run.start);
        place.len.set(one.run.end - one.run.start);
        one.desc.write(&mut place.desc);
    }
    let mut bytes = raw.as_bytes().to_vec();
    let end = bytes.len() - 4;
    let crc = crc32c(CRC32C_INIT, &bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    bytes.resize(old.block_bytes as usize, 0);
    bytes
}

/// The growth of this volume that was interrupted after the superblock got its new size. `None` if there is
/// none, or the volume has been written since.
///
/// # Errors
/// `Invalid` if there is no ext volume; of the device.
pub fn interrupted(disk: &Disk) -> Result<Option<Interrupted>> {
    let mut sb = superblock(disk)?;
    let Ok(geo) = Geometry::new(&sb) else {
        return Ok(None);
    };
    let len = u64::from(geo.block_bytes);
    if place(&geo) < SUPERBLOCK_OFFSET + len || geo.blocks > disk.len_bytes() / len {
        return Ok(None);
    }
    let bytes = read_bytes(disk, place(&geo), geo.block_bytes as usize)?;
    let Ok((raw, _)) = Raw::read_from_prefix(&bytes) else {
        return Ok(None);
    };
    let end = size_of::<Raw>() - 4;
    let is_whole = raw.magic == MAGIC && raw.sum.get() == crc32c(CRC32C_INIT, &bytes[..end]);
    let is_begun = raw.begun.get() == sum(&sb);
    let is_ended = raw.ended.get() == sum(&sb);
    if !is_whole || raw.uuid != sb.s_uuid || !(is_begun || is_ended) {
        return Ok(None);
    }
    let torn = sb.verify_checksum().is_err();
    if is_ended && !torn {
        return Ok(None);
    }
    // The first sector was written, the second perhaps not.
    sb.s_overhead_clusters = raw.overhead;
    sb.s_backup_bgs = raw.backup_bgs;
    sb.update_checksum();
    let Ok(geo) = Geometry::new(&sb) else {
        return Ok(None);
    };
    let Some(freed) = freed(&raw, &geo) else {
        return Ok(None);
    };
    Ok(Some(Interrupted {
        superblock: sb,
        old_blocks: raw.old_blocks.get(),
        freed,
        is_ending: is_ended,
    }))
}

/// The runs of a record, if each is in one group of the volume.
fn freed(raw: &Raw, geo: &Geometry) -> Option<Vec<Freed>> {
    let mut all = Vec::new();
    for one in &raw.freed {
        let (start, len) = (one.start.get(), one.len.get());
        if len == 0 {
            continue;
        }
        let end = start.checked_add(len)?;
        let group = geo.group_of_block(throughline_extfmt::FsBlock(start))?;
        if geo.group_of_block(throughline_extfmt::FsBlock(end - 1)) != Some(group) {
            return None;
        }
        all.push(Freed {
            run: start..end,
            desc: GroupDesc::read(&one.desc).ok()?,
        });
    }
    let is_old =
        raw.old_blocks.get() > geo.first_data_block.0 && raw.old_blocks.get() <= geo.blocks;
    is_old.then_some(all)
}

/// The group of a run.
pub(super) fn group_of(geo: &Geometry, freed: &Freed) -> GroupNumber {
    geo.group_of_block(throughline_extfmt::FsBlock(freed.run.start))
        .expect("checked when it was read, or planned")
}
