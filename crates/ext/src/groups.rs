//! Block groups: their descriptors, and which blocks of the volume are fixed metadata.
//!
//! Descriptors are read when they are asked for, through the journal's cache, so opening costs nothing per group. The map
//! of fixed metadata ([`Zones`]) needs all of them; it is made when blocks are first claimed or freed.

use std::sync::OnceLock;

use throughline_extfmt::group_desc::{self, GroupDesc};
use throughline_extfmt::{FsBlock, GroupNumber, Layout};

use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::handle::Handle;

/// What the volume knows of its groups.
#[derive(Default)]
pub(crate) struct Groups {
    zones: OnceLock<Zones>,
}

/// The blocks that no file may own: superblocks, descriptors and blocks kept for more of them, bitmaps, inode tables.
/// Ranges `start..end`, ascending, neither overlapping nor touching.
pub(crate) struct Zones(Box<[(u64, u64)]>);

impl Zones {
    /// Those that touch `start..end`.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.0.partition_point(|zone| zone.1 <= start);
        let rest = self.0.get(first..).unwrap_or_default();
        rest.iter().copied().take_while(move |zone| zone.0 < end)
    }

    /// From ranges in any order. Two that overlap: the volume is damaged.
    fn new(mut ranges: Vec<(u64, u64)>) -> Result<Self> {
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges {
            match merged.last_mut() {
                Some(last) if start < last.1 => {
                    return Err(Error::corrupt("two pieces of fixed metadata overlap").in_block(FsBlock(start)));
                }
                Some(last) if start == last.1 => last.1 = end,
                _ => merged.push((start, end)),
            }
        }
        Ok(Self(merged.into()))
    }
}

impl Fs {
    /// The descriptor of a group, its checksum and its numbers checked.
    ///
    /// # Errors
    /// Those of reading its block; `Corrupt`.
    pub(crate) fn group_desc(&self, group: GroupNumber) -> Result<GroupDesc> {
        let (block, offset) = self.desc_place(group)?;
        let bytes = self.read(block)?;
        group_desc::read_checked(&self.geo, group, &bytes, offset).map_err(|e| Error::from(e).in_block(block))
    }

    /// Changes the descriptor of a group (1 credit). The group's lock is held, so that no other change comes between what
    /// was read and what is written.
    ///
    /// # Errors
    /// Those of the journal; `Corrupt`.
    pub(crate) fn put_group_desc(&self, h: &mut Handle<'_>, group: GroupNumber, desc: &GroupDesc) -> Result<()> {
        let (block, offset) = self.desc_place(group)?;
        let end = offset.saturating_add(self.geo.desc_bytes.into());
        let mut desc = *desc;
        h.modify(block, |bytes| {
            if let Some(place) = bytes.get_mut(offset..end) {
                group_desc::write_with_checksum(&self.geo, group, &mut desc, place);
            }
        })
    }

    /// The block that holds a group's descriptor, and where in it.
    fn desc_place(&self, group: GroupNumber) -> Result<(FsBlock, usize)> {
        if group.0 >= self.geo.groups {
            return Err(Error::corrupt(format!("group {group} does not exist")));
        }
        Ok(Layout::new(&self.geo).desc_place(group))
    }

    /// The fixed metadata of the whole volume.
    ///
    /// # Errors
    /// Those of reading the descriptors; `Corrupt` where they contradict each other.
    pub(crate) fn zones(&self) -> Result<&Zones> {
        if let Some(zones) = self.groups.zones.get() {
            return Ok(zones);
        }
        let zones = self.read_zones()?;
        Ok(self.groups.zones.get_or_init(|| zones))
    }

    fn read_zones(&self) -> Result<Zones> {
        let layout = Layout::new(&self.geo);
        let mut ranges = Vec::new();
        let mut ahead = 0;
        for group in (0..self.geo.groups).map(GroupNumber) {
            if group.0 == ahead {
                ahead = self.read_descriptors_ahead(group);
            }
            let desc = self.group_desc(group)?;
            ranges.push((desc.block_bitmap().0, 1));
            ranges.push((desc.inode_bitmap().0, 1));
            ranges.push((desc.inode_table().0, self.geo.inode_table_blocks.into()));
            layout.base_metadata(group, |start, len| ranges.push((start.0, len)));
            if ranges.len() >= MERGE_AT {
                ranges = merge_early(ranges)?;
            }
        }
        let ranges = ranges.into_iter().filter(|r| r.1 != 0).map(|(start, len)| (start, start.saturating_add(len)));
        Zones::new(ranges.collect())
    }
}
