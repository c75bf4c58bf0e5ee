//! The numbers of a layout: block groups, inodes, descriptors, blocks reserved for growth.
//!
//! Each rule gives the number that mke2fs gives, so that both make the same volume of the same options. The
//! reasons are those of the format: a group is what a bitmap of one block describes, a table of inodes fills
//! whole blocks, and a bitmap of inodes whole bytes.

use throughline_extfmt::features::{Compat, Incompat, RoCompat};
use throughline_extfmt::geometry::{DESC_BYTES_64BIT, DESC_BYTES_MIN, MIN_BLOCK_BYTES};

use crate::error::{Error, Result};
use crate::features::Features;
use crate::request::{InodeCount, Request};

/// A last group is only made if this many blocks remain in it beside its metadata; else the volume is that
/// much shorter.
const MIN_LAST_GROUP: u64 = 50;
/// The default of growth: 1024 times the size.
const GROWTH: u64 = 1024;
/// Growth by reserved blocks ends at block numbers of 32 bits.
const MAX_GROWN_BLOCKS: u64 = u32::MAX as u64;
/// A group of which bitmaps and the like are a sensible part.
const MIN_BLOCKS_PER_GROUP: u32 = 256;
/// The reserved inodes, lost+found, and the orphan file.
const FEWEST_INODES: u64 = 12;

/// The numbers of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// The features, after `meta_bg` has replaced `resize_inode` where a group is too small for it.
    pub(crate) features: Features,
    pub(crate) blocks: u64,
    pub(crate) first_data_block: u32,
    pub(crate) blocks_per_group: u32,
    pub(crate) groups: u32,
    /// Inodes of a group before they are rounded.
    wanted_per_group: u64,
    pub(crate) inodes_per_group: u32,
    pub(crate) inode_table_blocks: u32,
    pub(crate) desc_bytes: u16,
    pub(crate) desc_blocks: u32,
    pub(crate) reserved_gdt_blocks: u32,
    /// The groups with a backup (`sparse_super2`).
    pub(crate) backup_bgs: [u32; 2],
}

impl Numbers {
    /// The numbers for a request.
    ///
    /// # Errors
    /// A size or a number that does not fit, with what does.
    pub(crate) fn new(request: &Request) -> Result<Numbers> {
        let mut blocks_per_group = blocks_per_group(request)?;
        loop {
            let mut numbers = Numbers::begin(request, blocks_per_group);
            numbers.fit(request)?;
            let bits = request.block_bytes * 8;
            if numbers.wanted_per_group > u64::from(bits) && blocks_per_group > MIN_BLOCKS_PER_GROUP
            {
                // More groups have more bitmaps of inodes.
                blocks_per_group -= 8;
                continue;
            }
            numbers.check(request)?;
            return Ok(numbers);
        }
    }

    fn begin(request: &Request, blocks_per_group: u32) -> Numbers {
        Numbers {
            features: request.features,
            blocks: request.blocks,
            first_data_block: u32::from(request.block_bytes == MIN_BLOCK_BYTES),
            blocks_per_group,
            groups: 0,
            wanted_per_group: 0,
            inodes_per_group: 0,
            inode_table_blocks: 0,
            desc_bytes: match request.features.incompat.contains(Incompat::BIT64) {
                true => DESC_BYTES_64BIT,
                false => DESC_BYTES_MIN,
            },
            desc_blocks: 0,
            reserved_gdt_blocks: 0,
            backup_bgs: [0; 2],
        }
    }

    /// Divides the volume, without a last group that would hold little beside its metadata.
    fn fit(&mut self, request: &Request) -> Result<()> {
        loop {
            self.divide(request)?;
            let rest =
                (self.blocks - u64::from(self.first_data_block)) % u64::from(self.blocks_per_group);
            let needed = u64::from(self.overhead(self.groups - 1));
            if self.groups == 1 || rest == 0 || rest >= needed + MIN_LAST_GROUP {
                return Ok(());
            }
            self.blocks -= rest;
        }
    }

    /// Checks that the inodes fit the groups, and the metadata the volume.
    fn check(&self, request: &Request) -> Result<()> {
        let bits = u64::from(request.block_bytes) * 8;
        let per_block = u64::from(request.block_bytes) / u64::from(request.inode_bytes);
        let groups = u64::from(self.groups);
        let in_group = match self.groups {
            1 => self.blocks - u64::from(self.first_data_block),
            _ => u64::from(self.blocks_per_group),
        };
        let metadata = u64::from(self.fixed(0)) + 2;
        if metadata + 1 >= in_group {
            return Err(too_small(request));
        }
        let most = ((in_group - metadata - 1) * per_block).min(bits) & !7;
        let per_group = u64::from(self.inodes_per_group);
        if most * groups < FEWEST_INODES {
            return Err(too_small(request));
        }
        if per_group > most || per_group * groups > u64::from(u32::MAX) {
            let all = (most * groups).min(u64::from(u32::MAX) & !7);
            return Err(Error::invalid(format!(
                "{} inodes do not fit {} blocks of {} bytes: at most {all} (-N), or more bytes per inode \
                 (-i)",
                per_group * groups,
                self.blocks,
                request.block_bytes
            )));
        }
        Ok(())
    }

    /// Divides the blocks into groups and the inodes among them.
    fn divide(&mut self, request: &Request) -> Result<()> {
        let in_groups = self
            .blocks
            .checked_sub(u64::from(self.first_data_block))
            .filter(|blocks| *blocks > 0)
            .ok_or_else(|| too_small(request))?;
        let groups = in_groups.div_ceil(u64::from(self.blocks_per_group));
        self.groups = u32::try_from(groups).map_err(|_| too_large(request))?;
        self.desc_blocks = self
            .groups
            .div_ceil(request.block_bytes / u32::from(self.desc_bytes));
        self.backup_bgs = self.backups(request);
        self.spread_inodes(request)?;
        self.reserved_gdt_blocks = self.reserved_gdt(request);
        if self.overhead(0) > self.blocks_per_group && self.groups > 1 {
            // Descriptors that stay with their groups take one block of each.
            self.features.compat.remove(Compat::RESIZE_INODE);
            self.features.incompat.insert(Incompat::META_BG);
            self.reserved_gdt_blocks = 0;
        }
        Ok(())
    }

    /// Inodes of a group: what was asked for, in whole blocks of the table and whole bytes of the bitmap.
    fn spread_inodes(&mut self, request: &Request) -> Result<()> {
        let wanted = match request.inodes {
            InodeCount::BytesPer(bytes) => {
                let size = u128::from(request.blocks) * u128::from(request.block_bytes);
                (size / u128::from(bytes.max(1))) as u64
            }
            InodeCount::AtLeast(count) => count,
        };
        let (groups, bits) = (u64::from(self.groups), u64::from(request.block_bytes) * 8);
        let per_block = u64::from(request.block_bytes) / u64::from(request.inode_bytes);
        let whole = |count: u64| (count.next_multiple_of(per_block) & !7).max(8);
        // The root directory, lost+found and the like need theirs.
        let fewest = FEWEST_INODES.div_ceil(groups).next_multiple_of(8);
        self.wanted_per_group = wanted.div_ceil(groups);
        let per_group = whole(self.wanted_per_group.min(bits)).max(fewest);
        self.inodes_per_group = per_group as u32;
        self.inode_table_blocks = per_group.div_ceil(per_block) as u32;
        Ok(())
    }

    /// The descriptor blocks that are reserved after those in use, for growth while mounted.
    fn reserved_gdt(&self, request: &Request) -> u32 {
        if !self.features.compat.contains(Compat::RESIZE_INODE) {
            return 0;
        }
        // The resize inode maps them through one block of pointers.
        let most = request.block_bytes / 4;
        let per_block = u64::from(request.block_bytes / u32::from(self.desc_bytes));
        let reserve = |blocks: u64| {
            let groups = blocks
                .saturating_sub(u64::from(self.first_data_block))
                .div_ceil(u64::from(self.blocks_per_group));
            let wanted = groups
                .div_ceil(per_block)
                .saturating_sub(u64::from(self.desc_blocks));
            wanted.min(u64::from(most)) as u32
        };
        let asked = request.resize_blocks.map_or(0, reserve);
        if asked > 0 {
            return asked;
        }
        reserve(self.blocks.saturating_mul(GROWTH).min(MAX_GROWN_BLOCKS))
    }

    /// With `sparse_super2`: the second group, and the last.
    fn backups(&self, request: &Request) -> [u32; 2] {
        if !request.features.compat.contains(Compat::SPARSE_SUPER2) {
            return [0; 2];
        }
        let last = self.groups - 1;
        match request.backups {
            0 => [0; 2],
            1 => [0, last.min(1)],
            _ => [last.min(1), if last > 1 { last } else { 0 }],
        }
    }

    /// Blocks at the start of a group that hold superblock and descriptors.
    fn fixed(&self, group: u32) -> u32 {
        let features = &self.features;
        let has_super = if group == 0 {
            true
        } else if features.compat.contains(Compat::SPARSE_SUPER2) {
            self.backup_bgs.contains(&group)
        } else {
            !features.ro_compat.contains(RoCompat::SPARSE_SUPER)
                || [3, 5, 7].into_iter().any(|base| is_power_of(group, base))
        };
        if features.incompat.contains(Incompat::META_BG) {
            return 1 + u32::from(has_super);
        }
        if has_super {
            1 + self.desc_blocks + self.reserved_gdt_blocks
        } else {
            0
        }
    }

    /// Blocks of a group that its metadata takes if all of it is in the group.
    fn overhead(&self, group: u32) -> u32 {
        2 + self.inode_table_blocks + self.fixed(group)
    }

    /// All inodes.
    pub(crate) fn inodes(&self) -> u32 {
        self.groups * self.inodes_per_group
    }
}

fn blocks_per_group(request: &Request) -> Result<u32> {
    // The count of a group's free blocks has 16 bits in short descriptors, and bitmaps whole bytes.
    let most = (request.block_bytes * 8).min(65528);
    let Some(asked) = request.blocks_per_group else {
        return Ok(most);
    };
    if !asked.is_multiple_of(8) || !(MIN_BLOCKS_PER_GROUP..=most).contains(&asked) {
        return Err(Error::invalid(format!(
            "{asked} blocks per group (-g): a multiple of 8 from {MIN_BLOCKS_PER_GROUP} to {most} is allowed \
             with blocks of {} bytes",
            request.block_bytes
        )));
    }
    Ok(asked)
}

fn too_small(request: &Request) -> Error {
    Error::invalid(format!(
        "{} blocks of {} bytes are too small for a file system with these options",
        request.blocks, request.block_bytes
    ))
}

fn too_large(request: &Request) -> Error {
    Error::invalid(format!(
        "{} blocks of {} bytes make more than 2^32 block groups",
        request.blocks, request.block_bytes
    ))
}

/// Whether a number is a power of `base`, 1 included.
fn is_power_of(mut number: u32, base: u32) -> bool {
    while number > 1 && number.is_multiple_of(base) {
        number /= base;
    }
    number == 1
}
