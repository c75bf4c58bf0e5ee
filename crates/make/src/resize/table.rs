//! The descriptors of all groups, as they are on disk.

use throughline_block::Disk;
use throughline_extfmt::group_desc::{self, GroupFlags};
use throughline_extfmt::{Geometry, GroupDesc, GroupNumber, bitmap};

use crate::error::{Error, Result};
use crate::writer::read_bytes;

/// The blocks of descriptors of a volume, one after the other.
pub(super) struct Table {
    bytes: Vec<u8>,
    block_bytes: usize,
    desc_bytes: usize,
}

impl Table {
    /// Reads the descriptors of a volume and checks them, and makes room for those of `after`.
    ///
    /// # Errors
    /// `Damaged`; of the device.
    pub(super) fn read(disk: &Disk, before: &Geometry, after: &Geometry) -> Result<Table> {
        Table::read_except(disk, before, after, &[])
    }

    /// As [`Table::read`], without a check of the groups in `skipped`.
    ///
    /// # Errors
    /// As [`Table::read`].
    pub(super) fn read_except(
        disk: &Disk,
        before: &Geometry,
        after: &Geometry,
        skipped: &[GroupNumber],
    ) -> Result<Table> {
        let block_bytes = before.block_bytes as usize;
        let mut table = Table {
            bytes: vec![0; after.desc_blocks as usize * block_bytes],
            block_bytes,
            desc_bytes: before.desc_bytes.into(),
        };
        for index in 0..before.desc_blocks {
            let at = before.desc_block(index).0 * u64::from(before.block_bytes);
            let block = read_bytes(disk, at, block_bytes)?;
            let place = index as usize * block_bytes;
            table.bytes[place..place + block_bytes].copy_from_slice(&block);
        }
        for group in (0..before.groups).map(GroupNumber) {
            if skipped.contains(&group) {
                continue;
            }
            let offset = group.0 as usize * table.desc_bytes;
            group_desc::read_checked(before, group, &table.bytes, offset)
                .map_err(|why| Error::Damaged(why.to_string()))?;
        }
        // What is behind the last descriptor has no meaning yet.
        table.bytes[before.groups as usize * table.desc_bytes..].fill(0);
        Ok(table)
    }

    /// The descriptor of a group.
    pub(super) fn get(&self, group: GroupNumber) -> GroupDesc {
        let at = group.0 as usize * self.desc_bytes;
        GroupDesc::read(&self.bytes[at..at + self.desc_bytes])
            .expect("a descriptor has 32 or 64 bytes")
    }

    /// Sets the descriptor of a group, with its checksum.
    pub(super) fn set(&mut self, geo: &Geometry, group: GroupNumber, mut desc: GroupDesc) {
        let at = group.0 as usize * self.desc_bytes;
        let place = &mut self.bytes[at..at + self.desc_bytes];
        group_desc::write_with_checksum(geo, group, &mut desc, place);
    }

    /// A block of descriptors.
    pub(super) fn block(&self, index: u32) -> &[u8] {
        &self.bytes[index as usize * self.block_bytes..][..self.block_bytes]
    }

    /// The free blocks and inodes of all groups.
    pub(super) fn free(&self, geo: &Geometry) -> (u64, u32) {
        (0..geo.groups)
            .map(GroupNumber)
            .fold((0, 0), |(blocks, inodes), group| {
                let desc = self.get(group);
                (
                    blocks + u64::from(desc.free_blocks()),
                    inodes + desc.free_inodes(),
                )
            })
    }
}

/// Whether a group has no bitmap of blocks on disk.
pub(super) fn is_uninit(geo: &Geometry, desc: &GroupDesc) -> bool {
    geo.has_group_csum() && desc.flags().contains(GroupFlags::BLOCK_UNINIT)
}

/// Sets the checksum of a bitmap of blocks in its descriptor.
pub(super) fn sum_block_bitmap(geo: &Geometry, desc: &mut GroupDesc, bits: &[u8]) {
    if let Some(seed) = geo.csum_seed {
        desc.set_block_bitmap_csum(bitmap::checksum(bits, geo.clusters_per_group, seed));
    }
}
