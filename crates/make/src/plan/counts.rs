//! The counts of a group, and whether its bitmaps and its table stay uninitialised.
//!
//! With checksums of descriptors, a group in which nothing but its own metadata is in use needs no bitmap:
//! it follows from the descriptor, as long as none of its inodes is in use either. Such a bitmap is not
//! written, which is what makes large volumes quick to make. The last group always has one, because its end
//! is not that of the bitmap.

use throughline_extfmt::group_desc::GroupFlags;
use throughline_extfmt::{GroupNumber, InodeNumber, bitmap};

use super::Plan;
use super::files::LOST_AND_FOUND;
use super::place::own_blocks;
use crate::request::Request;

impl Plan<'_> {
    /// Sets the counts, flags and bitmap checksums of all descriptors.
    pub(super) fn count(&mut self, request: &Request) {
        let mut bits = vec![0; self.geo.block_bytes as usize];
        for group in (0..self.geo.groups).map(GroupNumber) {
            let used = self.space.used(&self.geo, group);
            let inodes = self.inodes_used(group);
            let own = [InodeNumber::ROOT, LOST_AND_FOUND];
            let dirs = own
                .into_iter()
                .filter(|ino| self.inodes.contains_key(&ino.0))
                .filter(|ino| {
                    self.geo
                        .inode_place(*ino)
                        .is_some_and(|(at, _)| at == group)
                })
                .count();
            let first = self.geo.inode_at(group, 0).0;
            let of_tree = self
                .tree
                .as_ref()
                .map_or(0, |tree| tree.directories(first..first + inodes));
            let mut desc = self.descs[group.0 as usize];
            desc.set_free_blocks(self.geo.group_blocks(group) - used as u32);
            desc.set_free_inodes(self.geo.inodes_per_group - inodes);
            desc.set_used_dirs((dirs + of_tree) as u32);
            let mut flags = GroupFlags::empty();
            if self.geo.has_group_csum() {
                desc.set_itable_unused(self.geo.inodes_per_group - inodes);
                let is_last = group.0 + 1 == self.geo.groups;
                let is_bare = used == own_blocks(&self.geo, group, &desc);
                flags.set(GroupFlags::INODE_UNINIT, inodes == 0);
                flags.set(GroupFlags::BLOCK_UNINIT, is_bare && !is_last && inodes == 0);
            }
            let is_zeroed = request.itable_zeroed || !request.lazy_itable;
            flags.set(GroupFlags::INODE_ZEROED, is_zeroed);
            desc.set_flags(flags);
            if let Some(seed) = self.geo.csum_seed {
                if !flags.contains(GroupFlags::BLOCK_UNINIT) {
                    self.block_bitmap(group, &mut bits);
                    let count = self.geo.clusters_per_group;
                    desc.set_block_bitmap_csum(bitmap::checksum(&bits, count, seed));
                }
                if !flags.contains(GroupFlags::INODE_UNINIT) {
                    self.inode_bitmap(group, &mut bits);
                    let count = self.geo.inodes_per_group;
                    desc.set_inode_bitmap_csum(bitmap::checksum(&bits, count, seed));
                }
            }
            self.descs[group.0 as usize] = desc;
        }
    }
}
