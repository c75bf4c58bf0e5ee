//! The geometry of a volume: the numbers of the superblock, checked for consistency.

use std::ops::RangeInclusive;

use crate::checksum::{CRC32C_INIT, crc32c};
use crate::error::ensure;
use crate::features::{Compat, Incompat, RoCompat};
use crate::superblock::{REV_DYNAMIC, Superblock};
use crate::units::{FsBlock, GroupNumber, InodeNumber};
use crate::{Corrupt, Result};

/// Size of a group descriptor without `64bit`, in bytes.
pub const DESC_BYTES_MIN: u16 = 32;
/// Size of the known part of a group descriptor with `64bit`, in bytes.
pub const DESC_BYTES_64BIT: u16 = 64;
/// Size of an inode in revision 0, in bytes.
pub const GOOD_OLD_INODE_BYTES: u16 = 128;
/// Smallest block, in bytes.
pub const MIN_BLOCK_BYTES: u32 = 1024;
/// Largest block, in bytes.
pub const MAX_BLOCK_BYTES: u32 = 65536;

/// The parameters of a volume that all other parsers need.
///
/// Invariants: `blocks > first_data_block`; `groups >= 1` and every block from
/// `first_data_block` belongs to exactly one of them; `groups * inodes_per_group == inodes`;
/// bitmaps fit their block (`clusters_per_group`, `inodes_per_group` <= 8 * `block_bytes`);
/// all sizes are powers of two where the format requires it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes of a block: a power of two, 1024 to 65536.
    pub block_bytes: u32,
    /// Base-2 logarithm of `block_bytes`: 10 to 16.
    pub block_log: u32,
    /// Base-2 logarithm of the blocks in a cluster; 0 without `bigalloc`.
    pub cluster_ratio_log: u32,
    /// All blocks of the volume, from block 0.
    pub blocks: u64,
    /// First block of group 0: 1 with blocks of 1 KiB (without `bigalloc`), 0 otherwise.
    pub first_data_block: FsBlock,
    /// Block groups.
    pub groups: u32,
    /// Blocks of a group; the last may be shorter.
    pub blocks_per_group: u32,
    /// Clusters of a group: the units of its bitmap.
    pub clusters_per_group: u32,
    /// All inodes; the highest inode number.
    pub inodes: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Bytes of an inode: a power of two, 128 to `block_bytes`.
    pub inode_bytes: u16,
    /// Blocks of a group's inode table.
    pub inode_table_blocks: u32,
    /// First inode that is not reserved.
    pub first_ino: InodeNumber,
    /// Bytes of a group descriptor: 32, or a power of two from 64 to 1024.
    pub desc_bytes: u16,
    /// Blocks that hold the descriptors of all groups.
    pub desc_blocks: u32,
    /// With `meta_bg`: the first descriptor block that lives in its meta group.
    pub first_meta_bg: Option<u32>,
    /// Blocks reserved after the descriptors for growth, in each group with a superblock.
    pub reserved_gdt_blocks: u16,
    /// Base-2 logarithm of the groups in a flex group; 0 without `flex_bg`.
    pub log_groups_per_flex: u32,
    /// With `sparse_super2`: the groups with a backup superblock (0: none).
    pub backup_bgs: [u32; 2],
    /// Feature words.
    pub compat: Compat,
    /// Feature words.
    pub incompat: Incompat,
    /// Feature words.
    pub ro_compat: RoCompat,
    /// With `metadata_csum`: the seed of all checksums.
    pub csum_seed: Option<u32>,
    /// `s_uuid`.
    pub uuid: [u8; 16],
}

impl Geometry {
    /// Takes the numbers of `sb` and checks their consistency. Does not check checksums
    /// ([`Superblock::validate`] does) nor unknown features (the caller must).
    pub fn new(sb: &Superblock) -> Result<Self> {
        ensure!(
            sb.has_magic(),
            "superblock magic is {:#06x}",
            sb.s_magic.get()
        );
        let rev = sb.s_rev_level.get();
        ensure!(
            rev <= REV_DYNAMIC,
            "superblock revision {rev} does not exist"
        );
        let (incompat, ro_compat) = (sb.incompat(), sb.ro_compat());
        let block_log = sb.s_log_block_size.get();
        ensure!(
            block_log <= 6,
            "block size is 1024 << {block_log}, over 64 KiB"
        );
        let block_log = block_log.wrapping_add(10);
        let block_bytes = 1u32 << block_log;
        let cluster_ratio_log = cluster_ratio_log(sb, block_log)?;
        let bits = block_bytes.saturating_mul(8);
        let clusters_per_group = clusters_per_group(sb, bits, cluster_ratio_log)?;
        let per_group = sb.s_blocks_per_group.get();
        let (desc_bytes, inode_bytes) = (desc_bytes(sb)?, inode_bytes(sb, block_bytes)?);
        let (groups, first_data_block) = groups(sb, block_bytes, cluster_ratio_log)?;
        let inodes_per_block = block_bytes.checked_div(u32::from(inode_bytes)).unwrap_or(1);
        let inodes_per_group = inodes_per_group(sb, groups, inodes_per_block..=bits)?;
        let inodes = sb.s_inodes_count.get();
        let inode_table_blocks = inodes_per_group.div_ceil(inodes_per_block);
        ensure!(
            inode_table_blocks < per_group,
            "an inode table of {inode_table_blocks} blocks fills a group of {per_group}"
        );
        let desc_blocks = groups.div_ceil(block_bytes.checked_div(desc_bytes.into()).unwrap_or(1));
        let first_meta_bg = incompat
            .contains(Incompat::META_BG)
            .then(|| sb.s_first_meta_bg.get());
        let geometry = Self {
            block_bytes,
            block_log,
            cluster_ratio_log,
            blocks: sb.blocks_count(),
            first_data_block,
            groups,
            blocks_per_group: per_group,
            clusters_per_group,
            inodes,
            inodes_per_group,
            inode_bytes,
            inode_table_blocks,
            first_ino: first_ino(sb, inodes)?,
            desc_bytes,
            desc_blocks,
            first_meta_bg,
            reserved_gdt_blocks: sb.s_reserved_gdt_blocks.get(),
            log_groups_per_flex: log_groups_per_flex(sb)?,
            backup_bgs: sb.s_backup_bgs.map(|group| group.get()),
            compat: sb.compat(),
            incompat,
            ro_compat,
            csum_seed: csum_seed(sb),
            uuid: sb.s_uuid,
        };
        geometry.check_fixed_metadata()?;
        Ok(geometry)
    }

    /// Checks that the fixed metadata leaves room in a full group.
    fn check_fixed_metadata(&self) -> Result<()> {
        let (desc_blocks, reserved) = (self.desc_blocks, self.reserved_gdt_blocks);
        ensure!(
            self.first_meta_bg.is_none_or(|first| first <= desc_blocks),
            "s_first_meta_bg is past the {desc_blocks} descriptor blocks"
        );
        ensure!(
            u32::from(reserved) <= self.block_bytes / 4,
            "{reserved} reserved descriptor blocks, over a block of pointers"
        );
        let fixed = u64::from(self.first_meta_bg.unwrap_or(self.desc_blocks))
            .saturating_add(u64::from(self.reserved_gdt_blocks))
            .saturating_add(2);
        let room = if self.groups > 1 {
            u64::from(self.blocks_per_group)
        } else {
            self.blocks.saturating_sub(self.first_data_block.0)
        };
        ensure!(
            fixed <= room,
            "{fixed} blocks of descriptors do not fit a group of {room}"
        );
        Ok(())
    }

    /// Group that holds `block`; `None` before the first group or past the volume.
    pub fn group_of_block(&self, block: FsBlock) -> Option<GroupNumber> {
        if block.0 >= self.blocks {
            return None;
        }
        let index = block.0.checked_sub(self.first_data_block.0)?;
        let group = index.checked_div(u64::from(self.blocks_per_group))?;
        u32::try_from(group).ok().map(GroupNumber)
    }

    /// First block of a group (`group` < `groups`).
    pub fn group_first_block(&self, group: GroupNumber) -> FsBlock {
        let index = u64::from(group.0).saturating_mul(u64::from(self.blocks_per_group));
        FsBlock(index.saturating_add(self.first_data_block.0))
    }

    /// Blocks of a group; 0 for a group that does not exist.
    pub fn group_blocks(&self, group: GroupNumber) -> u32 {
        let left = self.blocks.saturating_sub(self.group_first_block(group).0);
        left.min(u64::from(self.blocks_per_group)) as u32
    }

    /// Clusters of a group: the valid bits of its bitmap.
    pub fn group_clusters(&self, group: GroupNumber) -> u32 {
        self.group_blocks(group)
            .div_ceil(1 << self.cluster_ratio_log)
    }

    /// Group of an inode and its index there (0-based); `None` unless 1..=`inodes`.
    pub fn inode_place(&self, inode: InodeNumber) -> Option<(GroupNumber, u32)> {
        if inode.0 > self.inodes {
            return None;
        }
        let index = inode.0.checked_sub(1)?;
        Some((
            GroupNumber(index.checked_div(self.inodes_per_group)?),
            index.checked_rem(self.inodes_per_group)?,
        ))
    }

    /// The inode at an index (0-based) of a group.
    pub fn inode_at(&self, group: GroupNumber, index: u32) -> InodeNumber {
        InodeNumber(
            group
                .0
                .saturating_mul(self.inodes_per_group)
                .saturating_add(index)
                .saturating_add(1),
        )
    }

    /// Block of a group's inode table that holds inode `index`, counted from the table's start,
    /// and the byte offset of the inode in it.
    pub fn inode_in_table(&self, index: u32) -> (u32, usize) {
        let byte = u64::from(index).saturating_mul(u64::from(self.inode_bytes));
        (
            (byte >> self.block_log) as u32,
            (byte & u64::from(self.block_bytes.wrapping_sub(1))) as usize,
        )
    }

    /// Whether `[start, start + len)` lies in the part of the volume that may be allocated.
    pub fn holds_blocks(&self, start: FsBlock, len: u64) -> bool {
        start > self.first_data_block_or_zero()
            && start
                .0
                .checked_add(len)
                .is_some_and(|end| end <= self.blocks)
    }

    /// Block of the primary superblock: no file may own it or a block before it.
    fn first_data_block_or_zero(&self) -> FsBlock {
        FsBlock(u64::from(self.block_bytes == MIN_BLOCK_BYTES))
    }

    /// Whether checksums are crc32c (`metadata_csum`).
    pub fn has_metadata_csum(&self) -> bool {
        self.csum_seed.is_some()
    }

    /// Whether groups may be uninitialised: descriptors carry a checksum of either kind.
    pub fn has_group_csum(&self) -> bool {
        self.has_metadata_csum() || self.ro_compat.contains(RoCompat::GDT_CSUM)
    }

    /// Seed of the checksums of an inode and its blocks, if the volume has them.
    pub fn inode_seed(&self, inode: InodeNumber, generation: u32) -> Option<u32> {
        self.csum_seed
            .map(|seed| crate::checksum::inode_seed(seed, inode, generation))
    }
}

fn cluster_ratio_log(sb: &Superblock, block_log: u32) -> Result<u32> {
    let cluster_log = sb.s_log_cluster_size.get();
    if !sb.ro_compat().contains(RoCompat::BIGALLOC) {
        // Revision 0 stored the fragment size here; mke2fs writes the block size.
        return Ok(0);
    }
    let ratio = cluster_log
        .checked_add(10)
        .and_then(|log| log.checked_sub(block_log));
    match ratio {
        Some(ratio) if cluster_log <= 20 => Ok(ratio),
        _ => Err(Corrupt::new(format!(
            "cluster size is 1024 << {cluster_log}"
        ))),
    }
}

/// Clusters of a group: at most `bits`, those of its bitmap, and consistent with its blocks.
fn clusters_per_group(sb: &Superblock, bits: u32, ratio_log: u32) -> Result<u32> {
    let per_group = sb.s_blocks_per_group.get();
    let clusters = if sb.ro_compat().contains(RoCompat::BIGALLOC) {
        sb.s_clusters_per_group.get()
    } else {
        per_group
    };
    ensure!(
        (1..=bits).contains(&clusters),
        "{clusters} clusters per group, a bitmap block holds {bits}"
    );
    ensure!(
        u64::from(clusters) << ratio_log == u64::from(per_group),
        "{per_group} blocks per group are not {clusters} clusters"
    );
    Ok(clusters)
}

/// Inodes of a group: within `allowed`, and consistent with the inodes of the volume.
fn inodes_per_group(sb: &Superblock, groups: u32, allowed: RangeInclusive<u32>) -> Result<u32> {
    let (per_group, inodes) = (sb.s_inodes_per_group.get(), sb.s_inodes_count.get());
    ensure!(
        allowed.contains(&per_group),
        "{per_group} inodes per group, allowed are {} to {}",
        allowed.start(),
        allowed.end()
    );
    ensure!(
        u64::from(groups).checked_mul(u64::from(per_group)) == Some(u64::from(inodes)),
        "{inodes} inodes are not {groups} groups of {per_group}"
    );
    Ok(per_group)
}

fn desc_bytes(sb: &Superblock) -> Result<u16> {
    if !sb.incompat().contains(Incompat::BIT64) {
        return Ok(DESC_BYTES_MIN);
    }
    let bytes = sb.s_desc_size.get();
    ensure!(
        bytes.is_power_of_two() && (DESC_BYTES_64BIT..=1024).contains(&bytes),
        "group descriptor size is {bytes}, not a power of two from 64 to 1024"
    );
    Ok(bytes)
}

fn inode_bytes(sb: &Superblock, block_bytes: u32) -> Result<u16> {
    if sb.is_rev0() {
        return Ok(GOOD_OLD_INODE_BYTES);
    }
    let bytes = sb.s_inode_size.get();
    ensure!(
        bytes.is_power_of_two() && bytes >= GOOD_OLD_INODE_BYTES && u32::from(bytes) <= block_bytes,
        "inode size is {bytes}, not a power of two from 128 to the block size"
    );
    Ok(bytes)
}

fn first_ino(sb: &Superblock, inodes: u32) -> Result<InodeNumber> {
    if sb.is_rev0() {
        return Ok(InodeNumber::GOOD_OLD_FIRST);
    }
    let first = InodeNumber(sb.s_first_ino.get());
    ensure!(
        first >= InodeNumber::GOOD_OLD_FIRST && first.0 <= inodes,
        "first inode is {first} of {inodes}"
    );
    Ok(first)
}

fn log_groups_per_flex(sb: &Superblock) -> Result<u32> {
    let log = u32::from(sb.s_log_groups_per_flex);
    if !sb.incompat().contains(Incompat::FLEX_BG) {
        return Ok(0);
    }
    ensure!(log < 32, "flex groups of 2^{log} groups");
    Ok(log)
}

fn csum_seed(sb: &Superblock) -> Option<u32> {
    if !sb.ro_compat().contains(RoCompat::METADATA_CSUM) {
        None
    } else if sb.incompat().contains(Incompat::CSUM_SEED) {
        Some(sb.s_checksum_seed.get())
    } else {
        Some(crc32c(CRC32C_INIT, &sb.s_uuid))
    }
}

/// Number of groups, and the first data block.
fn groups(sb: &Superblock, block_bytes: u32, ratio_log: u32) -> Result<(u32, FsBlock)> {
    let first = sb.s_first_data_block.get();
    let right = u32::from(block_bytes == MIN_BLOCK_BYTES && ratio_log == 0);
    ensure!(
        first == right,
        "first data block is {first}, should be {right} with blocks of {block_bytes} bytes"
    );
    let blocks = sb.blocks_count();
    let in_groups = blocks.saturating_sub(u64::from(first));
    ensure!(
        in_groups > 0,
        "volume of {blocks} blocks has no block group"
    );
    ensure!(
        blocks
            .checked_mul(u64::from(block_bytes))
            .is_some_and(|bytes| bytes <= i64::MAX as u64),
        "volume of {blocks} blocks is over 2^63 bytes"
    );
    let groups = in_groups.div_ceil(u64::from(sb.s_blocks_per_group.get()).max(1));
    let groups = u32::try_from(groups)
        .map_err(|_| Corrupt::new(format!("{blocks} blocks make {groups} groups")))?;
    Ok((groups, FsBlock(u64::from(first))))
}
