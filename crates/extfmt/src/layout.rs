//! The location of fixed metadata: superblock copies, group descriptors and the blocks reserved for
//! more of them. From it follow the bitmaps of an uninitialised group.
//!
//! Descriptor block `n` holds the descriptors of meta group `n`. Without `meta_bg` (and before
//! `first_meta_bg`) all descriptor blocks follow each superblock copy; after it, block `n` lies
//! in the first group of its meta group, with copies in the second and the last.

use crate::bitmap;
use crate::features::{Compat, RoCompat};
use crate::geometry::MIN_BLOCK_BYTES;
use crate::units::{FsBlock, GroupNumber};
use crate::{Geometry, GroupDesc};

impl Geometry {
    /// The names of all features.
    pub fn feature_names(&self) -> Vec<String> {
        let mut names = self.compat.names();
        names.extend(self.incompat.names());
        names.extend(self.ro_compat.names());
        names
    }

    /// Whether the group starts with a copy of the superblock (group 0: the primary).
    pub fn has_superblock(&self, group: GroupNumber) -> bool {
        if group.0 == 0 {
            true
        } else if self.compat.contains(Compat::SPARSE_SUPER2) {
            self.backup_bgs.contains(&group.0)
        } else if group.0 == 1 || !self.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            true
        } else {
            [3, 5, 7].into_iter().any(|base| is_power_of(group.0, base))
        }
    }

    /// All groups that have a copy of the superblock, the primary's first.
    pub fn superblock_groups(&self) -> impl Iterator<Item = GroupNumber> {
        std::iter::successors(Some(GroupNumber(0)), |group| {
            self.next_superblock_group(*group)
        })
        .take_while(|group| group.0 < self.groups)
    }

    /// The first group after `group` that starts with a copy, if the volume has so many.
    fn next_superblock_group(&self, group: GroupNumber) -> Option<GroupNumber> {
        let after = group.0.checked_add(1)?;
        let next = if self.compat.contains(Compat::SPARSE_SUPER2) {
            self.backup_bgs
                .into_iter()
                .filter(|&one| one >= after)
                .min()
        } else if group.0 == 0 || !self.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            Some(after)
        } else {
            let powers = [3u32, 5, 7].map(|base| {
                std::iter::successors(Some(base), |power| power.checked_mul(base))
                    .find(|&power| power >= after)
            });
            powers.into_iter().flatten().min()
        };
        next.map(GroupNumber)
    }

    /// Block of the group's superblock copy, if it has one: its bytes start the block, but
    /// those of the primary are always at byte 1024 of the volume.
    pub fn superblock_block(&self, group: GroupNumber) -> Option<FsBlock> {
        self.has_superblock(group)
            .then(|| self.superblock_place(group))
    }

    /// First block of a group after the boot block.
    fn superblock_place(&self, group: GroupNumber) -> FsBlock {
        if group.0 == 0 {
            FsBlock(u64::from(self.block_bytes == MIN_BLOCK_BYTES))
        } else {
            self.group_first_block(group)
        }
    }

    /// The number of descriptors in a block.
    pub fn descs_per_block(&self) -> u32 {
        self.block_bytes
            .checked_div(u32::from(self.desc_bytes))
            .unwrap_or(1)
    }

    /// The number of descriptor blocks that follow every superblock copy; the others are in meta groups.
    fn old_desc_blocks(&self) -> u32 {
        self.first_meta_bg
            .unwrap_or(self.desc_blocks)
            .min(self.desc_blocks)
    }

    /// Whether the descriptors of a group, and of its neighbours, are in their own groups.
    fn is_in_meta_group(&self, group: GroupNumber) -> bool {
        let old_groups =
            u64::from(self.old_desc_blocks()).saturating_mul(u64::from(self.descs_per_block()));
        self.first_meta_bg.is_some() && u64::from(group.0) >= old_groups
    }

    /// Index of the descriptor block that holds a group's descriptor, and the byte offset in it.
    pub fn desc_index(&self, group: GroupNumber) -> (u32, usize) {
        let per_block = self.descs_per_block();
        let index = group.0.checked_div(per_block).unwrap_or(0);
        let within = group.0.checked_rem(per_block).unwrap_or(0);
        (
            index,
            (within as usize).saturating_mul(usize::from(self.desc_bytes)),
        )
    }

    /// The block that holds a group's descriptor, and its byte offset there.
    pub fn desc_place(&self, group: GroupNumber) -> (FsBlock, usize) {
        let (index, offset) = self.desc_index(group);
        (self.desc_block(index), offset)
    }

    /// Block of descriptor block `index` (0..`desc_blocks`).
    pub fn desc_block(&self, index: u32) -> FsBlock {
        if index < self.old_desc_blocks() {
            let primary = self.superblock_place(GroupNumber(0)).0;
            return FsBlock(primary.saturating_add(1).saturating_add(u64::from(index)));
        }
        self.meta_desc_block(GroupNumber(index.saturating_mul(self.descs_per_block())))
    }

    /// Place of a descriptor block in a group of its meta group: after a superblock copy.
    fn meta_desc_block(&self, group: GroupNumber) -> FsBlock {
        let place = self.superblock_place(group).0;
        FsBlock(place.saturating_add(u64::from(self.has_superblock(group))))
    }

    /// Blocks of the copies of descriptor block `index`.
    pub fn desc_block_backups(&self, index: u32) -> Vec<FsBlock> {
        if index < self.old_desc_blocks() {
            // A superblock copy in a meta group has only the descriptors of that.
            return self
                .superblock_groups()
                .skip(1)
                .take_while(|&group| !self.is_in_meta_group(group))
                .map(|group| {
                    let first = self.group_first_block(group).0;
                    FsBlock(first.saturating_add(1).saturating_add(u64::from(index)))
                })
                .collect();
        }
        let first = index.saturating_mul(self.descs_per_block());
        let last = first
            .saturating_add(self.descs_per_block())
            .saturating_sub(1);
        let mut groups = vec![first.saturating_add(1), last];
        groups.dedup();
        groups.retain(|&group| group > first && group < self.groups);
        groups
            .into_iter()
            .map(|group| self.meta_desc_block(GroupNumber(group)))
            .collect()
    }

    /// Blocks at the start of a group that hold superblock, descriptors and reserved
    /// descriptor blocks (and the boot block). Bitmaps and inode table are not counted.
    pub fn fixed_blocks(&self, group: GroupNumber) -> u32 {
        let has_super = self.has_superblock(group);
        let per_block = self.descs_per_block();
        let descs = if self.is_in_meta_group(group) {
            let within = group.0.checked_rem(per_block).unwrap_or(0);
            u32::from(within <= 1 || within == per_block.saturating_sub(1))
        } else if has_super {
            self.old_desc_blocks()
                .saturating_add(u32::from(self.reserved_gdt_blocks))
        } else {
            0
        };
        let boot = if group.0 == 0 {
            self.superblock_place(group)
                .0
                .saturating_sub(self.first_data_block.0) as u32
        } else {
            0
        };
        descs
            .saturating_add(u32::from(has_super))
            .saturating_add(boot)
            .min(self.group_blocks(group))
    }

    /// Writes the block bitmap of a group flagged `BLOCK_UNINIT`: its fixed metadata, its own
    /// bitmaps and table if they lie in it, and the bits past its end are set.
    pub fn init_block_bitmap(&self, group: GroupNumber, desc: &GroupDesc, bits: &mut [u8]) {
        bits.fill(0);
        let first = self.group_first_block(group);
        self.mark_blocks(group, first, u64::from(self.fixed_blocks(group)), bits);
        self.mark_blocks(group, desc.block_bitmap(), 1, bits);
        self.mark_blocks(group, desc.inode_bitmap(), 1, bits);
        self.mark_blocks(
            group,
            desc.inode_table(),
            u64::from(self.inode_table_blocks),
            bits,
        );
        let end = bitmap::len_bits(bits);
        bitmap::set_range(bits, self.group_clusters(group)..end);
    }

    /// Sets the bits of the blocks in `start..start + len` that lie in the group.
    fn mark_blocks(&self, group: GroupNumber, start: FsBlock, len: u64, bits: &mut [u8]) {
        let first = self.group_first_block(group).0;
        let end = first.saturating_add(u64::from(self.group_blocks(group)));
        let (from, to) = (start.0.max(first), start.0.saturating_add(len).min(end));
        if from < to {
            let ratio = self.cluster_ratio_log;
            let from = from.saturating_sub(first) >> ratio;
            let to = to.saturating_sub(first).saturating_sub(1) >> ratio;
            bitmap::set_range(bits, from as u32..(to as u32).saturating_add(1));
        }
    }

    /// Writes the inode bitmap of a group flagged `INODE_UNINIT`: all inodes free, the bits past the
    /// group's inodes set.
    pub fn init_inode_bitmap(&self, bits: &mut [u8]) {
        bits.fill(0);
        let end = bitmap::len_bits(bits);
        bitmap::set_range(bits, self.inodes_per_group..end);
    }
}

fn is_power_of(mut number: u32, base: u32) -> bool {
    while number > 1 && number.checked_rem(base) == Some(0) {
        number = number.checked_div(base).unwrap_or(0);
    }
    number == 1
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::Superblock;

    #[test]
    fn powers() {
        let powers: Vec<u32> = (0..400)
            .filter(|&group| [3, 5, 7].into_iter().any(|base| is_power_of(group, base)))
            .collect();
        assert_eq!(powers, [1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343]);
    }

    /// Those that are listed are those that have a copy, for every way to choose them.
    #[test]
    fn superblock_groups_are_those_with_a_copy() {
        let mut superblock = Superblock::new_zeroed();
        superblock.s_magic.set(0xef53);
        superblock.s_rev_level.set(1);
        superblock.s_blocks_per_group.set(8192);
        superblock.s_inodes_per_group.set(16);
        superblock.s_first_data_block.set(1);
        superblock.s_inode_size.set(128);
        superblock.s_first_ino.set(11);
        for groups in [1, 2, 3, 4, 10, 400] {
            superblock.s_blocks_count_lo.set(groups * 8192 + 1);
            superblock.s_inodes_count.set(groups * 16);
            for (sparse, sparse2) in [(false, false), (true, false), (false, true), (true, true)] {
                let mut geo = Geometry::new(&superblock).unwrap();
                geo.ro_compat.set(RoCompat::SPARSE_SUPER, sparse);
                geo.compat.set(Compat::SPARSE_SUPER2, sparse2);
                for backups in [[0, 0], [1, 0], [1, 399], [2, 2], [9, 3]] {
                    geo.backup_bgs = backups;
                    let with_copy = (0..groups).map(GroupNumber);
                    let with_copy = with_copy.filter(|group| geo.has_superblock(*group));
                    assert!(
                        geo.superblock_groups().eq(with_copy),
                        "{groups}, {backups:?}"
                    );
                }
            }
        }
    }
}
