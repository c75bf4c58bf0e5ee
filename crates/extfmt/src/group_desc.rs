//! Group descriptors: the location of a group's bitmaps and inode table, and its free counts.
//!
//! On disk a descriptor has 32 bytes, or with `64bit` 64 or more. In memory it always has 64;
//! high halves that the disk does not have are 0. [`GroupDesc::read`] and [`GroupDesc::write`]
//! convert, and preserve bytes past 64.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{crc16, crc32c};
use crate::error::ensure;
use crate::features::Incompat;
use crate::units::{FsBlock, GroupNumber};
use crate::{Corrupt, Geometry, Result};

bitflags::bitflags! {
    /// `bg_flags`. Valid only if descriptors have a checksum.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap and table are not initialised: no inode is in use.
        const INODE_UNINIT = 1;
        /// The block bitmap is not initialised: only fixed metadata is in use.
        const BLOCK_UNINIT = 2;
        /// The inode table is zeroed.
        const INODE_ZEROED = 4;
        const _ = !0;
    }
}

/// A group descriptor, 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct GroupDesc {
    pub bg_block_bitmap_lo: U32,
    pub bg_inode_bitmap_lo: U32,
    pub bg_inode_table_lo: U32,
    pub bg_free_blocks_count_lo: U16,
    pub bg_free_inodes_count_lo: U16,
    pub bg_used_dirs_count_lo: U16,
    pub bg_flags: U16,
    pub bg_exclude_bitmap_lo: U32,
    pub bg_block_bitmap_csum_lo: U16,
    pub bg_inode_bitmap_csum_lo: U16,
    pub bg_itable_unused_lo: U16,
    pub bg_checksum: U16,
    pub bg_block_bitmap_hi: U32,
    pub bg_inode_bitmap_hi: U32,
    pub bg_inode_table_hi: U32,
    pub bg_free_blocks_count_hi: U16,
    pub bg_free_inodes_count_hi: U16,
    pub bg_used_dirs_count_hi: U16,
    pub bg_itable_unused_hi: U16,
    pub bg_exclude_bitmap_hi: U32,
    pub bg_block_bitmap_csum_hi: U16,
    pub bg_inode_bitmap_csum_hi: U16,
    pub bg_reserved: U32,
}

const _: () = {
    assert!(size_of::<GroupDesc>() == 64);
    assert!(offset_of!(GroupDesc, bg_flags) == 0x12);
    assert!(offset_of!(GroupDesc, bg_checksum) == 0x1E);
    assert!(offset_of!(GroupDesc, bg_block_bitmap_hi) == 0x20);
    assert!(offset_of!(GroupDesc, bg_inode_bitmap_csum_hi) == 0x3A);
};

/// Defines a getter and a setter for a number stored in two halves.
macro_rules! halves {
    ($(
        $(#[$doc:meta])*
        $get:ident, $set:ident: $ty:ty = $lo:ident, $hi:ident << $shift:literal as $half:ty;
    )+) => {$(
        $(#[$doc])*
        pub fn $get(&self) -> $ty {
            <$ty>::from(self.$hi.get()) << $shift | <$ty>::from(self.$lo.get())
        }

        $(#[$doc])*
        pub fn $set(&mut self, value: $ty) {
            self.$lo.set(value as $half);
            self.$hi.set((value >> $shift) as $half);
        }
    )+};
}

impl GroupDesc {
    /// Reads a descriptor of 32 bytes or of 64 and more; `bytes` is exactly the descriptor.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let mut whole = [0u8; size_of::<Self>()];
        let len = bytes.len().min(whole.len());
        ensure!(
            len == 32 || len == 64,
            "group descriptor of {} bytes",
            bytes.len()
        );
        whole[..len].copy_from_slice(&bytes[..len]);
        Ok(zerocopy::transmute!(whole))
    }

    /// Writes the descriptor over `bytes`, exactly the descriptor's place: 32 bytes without the
    /// high halves, or 64 and more, of which those past 64 are kept.
    pub fn write(&self, bytes: &mut [u8]) {
        let len = if bytes.len() >= 64 {
            64
        } else {
            bytes.len().min(32)
        };
        bytes[..len].copy_from_slice(&self.as_bytes()[..len]);
    }

    /// `bg_flags`.
    pub fn flags(&self) -> GroupFlags {
        GroupFlags::from_bits_retain(self.bg_flags.get())
    }

    /// Sets `bg_flags`.
    pub fn set_flags(&mut self, flags: GroupFlags) {
        self.bg_flags.set(flags.bits());
    }

    halves! {
        /// Block of the block bitmap.
        block_bitmap_raw, set_block_bitmap: u64 = bg_block_bitmap_lo, bg_block_bitmap_hi << 32 as u32;
        /// Block of the inode bitmap.
        inode_bitmap_raw, set_inode_bitmap: u64 = bg_inode_bitmap_lo, bg_inode_bitmap_hi << 32 as u32;
        /// First block of the inode table.
        inode_table_raw, set_inode_table: u64 = bg_inode_table_lo, bg_inode_table_hi << 32 as u32;
        /// Free clusters (blocks without `bigalloc`).
        free_blocks, set_free_blocks: u32 = bg_free_blocks_count_lo, bg_free_blocks_count_hi << 16 as u16;
        /// Free inodes.
        free_inodes, set_free_inodes: u32 = bg_free_inodes_count_lo, bg_free_inodes_count_hi << 16 as u16;
        /// Directories.
        used_dirs, set_used_dirs: u32 = bg_used_dirs_count_lo, bg_used_dirs_count_hi << 16 as u16;
        /// Inodes at the end of the table that were never used (with a group checksum only).
        itable_unused, set_itable_unused: u32 = bg_itable_unused_lo, bg_itable_unused_hi << 16 as u16;
        /// Checksum of the block bitmap; 16 bits are kept in 32-byte descriptors.
        block_bitmap_csum, set_block_bitmap_csum: u32 =
            bg_block_bitmap_csum_lo, bg_block_bitmap_csum_hi << 16 as u16;
        /// Checksum of the inode bitmap; 16 bits are kept in 32-byte descriptors.
        inode_bitmap_csum, set_inode_bitmap_csum: u32 =
            bg_inode_bitmap_csum_lo, bg_inode_bitmap_csum_hi << 16 as u16;
    }

    /// Block of the block bitmap.
    pub fn block_bitmap(&self) -> FsBlock {
        FsBlock(self.block_bitmap_raw())
    }

    /// Block of the inode bitmap.
    pub fn inode_bitmap(&self) -> FsBlock {
        FsBlock(self.inode_bitmap_raw())
    }

    /// First block of the inode table.
    pub fn inode_table(&self) -> FsBlock {
        FsBlock(self.inode_table_raw())
    }

    /// Checks locations and counts: bitmaps and table are inside the volume (inside the group
    /// without `flex_bg`), and no count exceeds the group's size.
    pub fn check(&self, geometry: &Geometry, group: GroupNumber) -> Result<()> {
        self.check_places(geometry, group)?;
        for (what, count, most) in [
            (
                "free blocks",
                self.free_blocks(),
                geometry.group_clusters(group),
            ),
            ("free inodes", self.free_inodes(), geometry.inodes_per_group),
            ("directories", self.used_dirs(), geometry.inodes_per_group),
            (
                "unused inodes",
                self.itable_unused(),
                geometry.inodes_per_group,
            ),
        ] {
            ensure!(count <= most, "group {group} has {count} {what} of {most}");
        }
        Ok(())
    }

    /// Checks the locations of bitmaps and inode table.
    pub fn check_places(&self, geometry: &Geometry, group: GroupNumber) -> Result<()> {
        check_place(geometry, group, "block bitmap", self.block_bitmap(), 1)?;
        check_place(geometry, group, "inode bitmap", self.inode_bitmap(), 1)?;
        self.check_inode_table(geometry, group)
    }

    /// Checks the location of the inode table.
    pub fn check_inode_table(&self, geometry: &Geometry, group: GroupNumber) -> Result<()> {
        let blocks = geometry.inode_table_blocks.into();
        check_place(geometry, group, "inode table", self.inode_table(), blocks)
    }
}

/// Checks that `len` blocks from `start` are in the volume; without `flex_bg`, in the group.
fn check_place(
    geometry: &Geometry,
    group: GroupNumber,
    what: &str,
    start: FsBlock,
    len: u64,
) -> Result<()> {
    let mut good = geometry.holds_blocks(start, len);
    if good && !geometry.incompat.contains(Incompat::FLEX_BG) {
        let last = FsBlock(start.0.saturating_add(len.saturating_sub(1)));
        good = geometry.group_of_block(start) == Some(group)
            && geometry.group_of_block(last) == Some(group);
    }
    ensure!(
        good,
        "{what} of group {group} is at block {start}, which is out of bounds"
    );
    Ok(())
}

impl std::fmt::Debug for GroupDesc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupDesc")
            .field("block_bitmap", &self.block_bitmap().0)
            .field("inode_bitmap", &self.inode_bitmap().0)
            .field("inode_table", &self.inode_table().0)
            .field("free_blocks", &self.free_blocks())
            .field("free_inodes", &self.free_inodes())
            .field("used_dirs", &self.used_dirs())
            .field("itable_unused", &self.itable_unused())
            .field("flags", &self.flags())
            .finish_non_exhaustive()
    }
}

/// The correct checksum of a descriptor's bytes (exactly `desc_bytes`): crc32c with
/// `metadata_csum`, crc16 with `uninit_bg`, `None` without either.
pub fn checksum(geometry: &Geometry, group: GroupNumber, bytes: &[u8]) -> Option<u16> {
    const FIELD: usize = offset_of!(GroupDesc, bg_checksum);
    const NUMBER_BYTES: usize = size_of::<GroupNumber>();
    let (before, rest) = bytes.split_at_checked(FIELD)?;
    let after = rest.get(2..)?;
    let number = group.0.to_le_bytes();
    if let Some(seed) = geometry.csum_seed {
        // The number, then the descriptor with the field zeroed. Assembled, because several calls over a few
        // bytes each take several times as long.
        let mut message = [0; NUMBER_BYTES + size_of::<GroupDesc>()];
        message[..NUMBER_BYTES].copy_from_slice(&number);
        let (known, beyond) = bytes.split_at(bytes.len().min(size_of::<GroupDesc>()));
        let message = message.get_mut(..NUMBER_BYTES.saturating_add(known.len()))?;
        message.get_mut(NUMBER_BYTES..)?.copy_from_slice(known);
        message
            .get_mut(NUMBER_BYTES + FIELD..)?
            .get_mut(..2)?
            .fill(0);
        Some(crc32c(crc32c(seed, message), beyond) as u16)
    } else if geometry.has_group_csum() {
        // The field itself is skipped, not zeroed.
        let crc = crc16(crc16(crc16(!0, &geometry.uuid), &number), before);
        Some(crc16(crc, after))
    } else {
        None
    }
}

/// Checks the checksum in a descriptor's bytes, if the volume has one.
pub fn verify_checksum(geometry: &Geometry, group: GroupNumber, bytes: &[u8]) -> Result<()> {
    let Some(right) = checksum(geometry, group, bytes) else {
        return Ok(());
    };
    let found = GroupDesc::read(bytes)?.bg_checksum.get();
    ensure!(
        found == right,
        "descriptor checksum of group {group} is {found:#06x}, should be {right:#06x}"
    );
    Ok(())
}

/// Writes `desc` over `bytes` (exactly `desc_bytes`) with its checksum.
pub fn write_with_checksum(
    geometry: &Geometry,
    group: GroupNumber,
    desc: &mut GroupDesc,
    bytes: &mut [u8],
) {
    desc.write(bytes);
    if let Some(crc) = checksum(geometry, group, bytes) {
        desc.bg_checksum.set(crc);
        desc.write(bytes);
    }
}

/// The bytes of a descriptor, at byte `offset` of its block.
pub fn bytes<'a>(geometry: &Geometry, block: &'a [u8], offset: usize) -> Result<&'a [u8]> {
    offset
        .checked_add(usize::from(geometry.desc_bytes))
        .and_then(|end| block.get(offset..end))
        .ok_or_else(|| Corrupt::new(format!("group descriptor at byte {offset} is cut short")))
}

/// Reads a descriptor at byte `offset` of its block without checks.
pub fn read(geometry: &Geometry, block: &[u8], offset: usize) -> Result<GroupDesc> {
    GroupDesc::read(bytes(geometry, block, offset)?)
}

/// Reads the descriptor of `group` out of its block at byte `offset`, and checks all of it.
pub fn read_checked(
    geometry: &Geometry,
    group: GroupNumber,
    block: &[u8],
    offset: usize,
) -> Result<GroupDesc> {
    let bytes = bytes(geometry, block, offset)?;
    verify_checksum(geometry, group, bytes)?;
    let desc = GroupDesc::read(bytes)?;
    desc.check(geometry, group)?;
    Ok(desc)
}
