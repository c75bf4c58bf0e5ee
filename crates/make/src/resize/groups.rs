//! The new groups: where their metadata is, and which of their blocks it takes. All of it is beyond the old
//! end of the volume.

use throughline_extfmt::group_desc::GroupFlags;
use throughline_extfmt::{Geometry, GroupDesc, GroupNumber};

use super::table::{Table, is_uninit, sum_block_bitmap};
use crate::error::Result;
use crate::plan::place::{own_blocks, place};
use crate::plan::space::Space;

/// The groups that a volume gets.
pub(super) struct NewGroups<'g> {
    geo: &'g Geometry,
    /// The first of them.
    pub(super) first: u32,
    space: Space,
}

impl<'g> NewGroups<'g> {
    /// Places the groups from `first` on, and enters their descriptors in `table`.
    ///
    /// # Errors
    /// `Invalid` if they have no room for their metadata.
    pub(super) fn place(
        geo: &'g Geometry,
        first: u32,
        stride: u32,
        is_zero: bool,
        table: &mut Table,
    ) -> Result<NewGroups<'g>> {
        let mut space = Space::default();
        space.add(0..geo.group_first_block(GroupNumber(first)).0);
        let descs = place(geo, first, false, stride, &mut space)?;
        let new = NewGroups { geo, first, space };
        for (group, mut desc) in (first..).map(GroupNumber).zip(descs) {
            new.count(group, is_zero, &mut desc);
            table.set(geo, group, desc);
        }
        Ok(new)
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = GroupNumber> + use<> {
        (self.first..self.geo.groups).map(GroupNumber)
    }

    /// Sets the counts, flags and checksums of a new group.
    fn count(&self, group: GroupNumber, is_zero: bool, desc: &mut GroupDesc) {
        let geo = self.geo;
        let used = self.space.used(geo, group);
        desc.set_free_blocks(geo.group_blocks(group) - used as u32);
        desc.set_free_inodes(geo.inodes_per_group);
        let mut flags = GroupFlags::empty();
        if geo.has_group_csum() {
            desc.set_itable_unused(geo.inodes_per_group);
            flags |= GroupFlags::INODE_UNINIT;
            let is_last = group.0 + 1 == geo.groups;
            let is_bare = used == own_blocks(geo, group, desc);
            flags.set(GroupFlags::BLOCK_UNINIT, is_bare && !is_last);
        }
        flags.set(GroupFlags::INODE_ZEROED, is_zero || !geo.has_group_csum());
        desc.set_flags(flags);
        if !is_uninit(geo, desc) {
            let mut bits = vec![0; geo.block_bytes as usize];
            self.block_bitmap(group, &mut bits);
            sum_block_bitmap(geo, desc, &bits);
        }
    }

    /// The bitmap of the blocks of a new group.
    pub(super) fn block_bitmap(&self, group: GroupNumber, bits: &mut [u8]) {
        self.space.bitmap(self.geo, group, bits);
    }

    /// The blocks that the metadata of the new groups takes.
    pub(super) fn overhead(&self) -> u64 {
        let from = self.geo.group_first_block(GroupNumber(self.first)).0;
        self.space.count(from..self.geo.blocks)
    }

    /// Whether no metadata is in a block beyond the old end.
    pub(super) fn is_free(&self, block: u64) -> bool {
        block < self.geo.group_first_block(GroupNumber(self.first)).0
            || self.space.count(block..block + 1) == 0
    }
}
