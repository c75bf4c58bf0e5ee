//! A quick check that the volume's counts agree: bitmaps, descriptors, superblock, and memory.
//!
//! It reads all descriptors and bitmaps and nothing else, so it does not check files; `e2fsck` does. It is
//! for tests, and for users who want to know whether a volume is sound enough to write to.

use throughline_extfmt::GroupNumber;

use crate::alloc::Alloc;
use crate::error::{Error, Result};

impl Alloc {
    /// Compares the counts. The volume must not be changed meanwhile. On a volume opened for writing, the
    /// superblock is compared as it would be written.
    ///
    /// # Errors
    /// `Corrupt` for the first mismatch; device errors.
    pub fn check_counts(&self) -> Result<()> {
        let (mut free_blocks, mut free_inodes) = (0u64, 0u32);
        for group in (0..self.geo.groups).map(GroupNumber) {
            self.read_descriptors_ahead(group);
            let desc = self.group_desc(group)?;
            self.check_block_bitmap(group)?;
            let (inodes, recorded) = self.count_free_inodes(group)?;
            if inodes != recorded {
                return Err(Error::corrupt(format!(
                    "group {group} has {inodes} free inodes in its bitmap, {recorded} in its descriptor"
                )));
            }
            free_blocks = free_blocks.saturating_add(desc.free_blocks().into());
            free_inodes = free_inodes.saturating_add(inodes);
        }
        let sb = self.superblock();
        let free_blocks = free_blocks << self.geo.cluster_ratio_log;
        if sb.free_blocks_count() != free_blocks || sb.s_free_inodes_count.get() != free_inodes {
            return Err(Error::corrupt(format!(
                "the superblock has {} free blocks and {} free inodes, the groups {free_blocks} and \
                 {free_inodes}",
                sb.free_blocks_count(),
                sb.s_free_inodes_count.get()
            )));
        }
        Ok(())
    }
}
