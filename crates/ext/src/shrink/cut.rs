//! The cut: one transaction gives the superblock its new size.
//!
//! The metadata of groups that go, where it is in groups that remain, stays in use. It has no owner from then
//! on, and is freed once the volume is opened with its new size ([`crate::Fs::free_ownerless`]).

use throughline_extfmt::group_desc::GroupFlags;
use throughline_extfmt::{FsBlock, Geometry, GroupNumber, Superblock};

use crate::balloc::GROUP_CREDITS;
use crate::error::Result;
use crate::fs::Fs;

impl Fs {
    /// Gives a volume of which nothing is in use beyond the new end the numbers of `sb`, whose geometry is
    /// `after`, and writes `copy`, a block of the volume. Durable when it returns; nothing but
    /// [`Fs::close`] may follow.
    ///
    /// # Errors
    /// `Corrupt`; journal errors.
    pub fn cut(
        &self,
        sb: &Superblock,
        after: &Geometry,
        copy: Option<(FsBlock, &[u8])>,
    ) -> Result<()> {
        let uninit = self.smaller_fixed(after)?;
        let descs = (uninit.len() as u32).min(self.geo.desc_blocks);
        self.transact(GROUP_CREDITS + 2 + descs, |h| {
            self.end_last_group(h, GroupNumber(after.groups.saturating_sub(1)), after)?;
            for (group, more) in &uninit {
                self.change_group_desc(h, *group, |desc| {
                    desc.set_free_blocks(desc.free_blocks().saturating_add(*more));
                })?;
            }
            if let Some((block, bytes)) = copy {
                h.create(block, |place| place.copy_from_slice(bytes))?;
            }
            let (mut blocks, mut inodes) = (0u64, 0u32);
            for group in (0..after.groups).map(GroupNumber) {
                self.read_descriptors_ahead(group);
                let (free_blocks, free_inodes) = self.free_counts(group)?;
                blocks = blocks.saturating_add(free_blocks.into());
                inodes = inodes.saturating_add(free_inodes);
            }
            self.balloc.set_free(blocks);
            self.ialloc.set_free(inodes);
            self.update_super(h, |own| take_size(own, sb))
        })?;
        self.sync_metadata()
    }

    /// Groups without a bitmap on disk that need fewer blocks for descriptors, and how many fewer.
    fn smaller_fixed(&self, after: &Geometry) -> Result<Vec<(GroupNumber, u32)>> {
        let mut found = Vec::new();
        for group in (0..after.groups.saturating_sub(1)).map(GroupNumber) {
            let less = self
                .geo
                .fixed_blocks(group)
                .saturating_sub(after.fixed_blocks(group));
            if less > 0 && self.geo.has_group_csum() {
                let flags = self.group_desc(group)?.flags();
                if flags.contains(GroupFlags::BLOCK_UNINIT) {
                    found.push((group, less));
                }
            }
        }
        Ok(found)
    }
}

/// Takes over what depends on the size.
fn take_size(own: &mut Superblock, sb: &Superblock) {
    own.s_blocks_count_lo = sb.s_blocks_count_lo;
    own.s_blocks_count_hi = sb.s_blocks_count_hi;
    own.s_r_blocks_count_lo = sb.s_r_blocks_count_lo;
    own.s_r_blocks_count_hi = sb.s_r_blocks_count_hi;
    own.s_inodes_count = sb.s_inodes_count;
    own.s_reserved_gdt_blocks = sb.s_reserved_gdt_blocks;
    own.s_first_meta_bg = sb.s_first_meta_bg;
    own.s_backup_bgs = sb.s_backup_bgs;
    own.s_overhead_clusters = sb.s_overhead_clusters;
}
