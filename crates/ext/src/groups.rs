//! Block groups: their descriptors, and which blocks of the volume are fixed metadata.
//!
//! Descriptors are read on demand through the journal's cache, so opening has no per-group cost. The map of
//! fixed metadata ([`Zones`]) needs all of them; it is built when blocks are first claimed or freed.

use std::ops::Deref;
use std::sync::OnceLock;

use throughline_extfmt::geometry::DESC_BYTES_64BIT;
use throughline_extfmt::group_desc::{self, GroupDesc};
use throughline_extfmt::{Corrupt, FsBlock, Geometry, GroupNumber};
use throughline_journal::Part;

use crate::base::Base;
use crate::error::{Error, Result};
use crate::handle::Handle;

/// Number of ranges at which adjacent ones are merged while the map of fixed metadata is built.
const JOIN_AT: usize = 1 << 16;
/// Descriptor blocks read ahead at once when all of them will be read.
const READ_AHEAD_BLOCKS: u32 = 256;

/// The block groups of a volume, their descriptors, and the blocks that no file may own: the layer above
/// [`Base`].
pub struct Groups {
    base: Base,
    zones: OnceLock<Zones>,
}

impl Groups {
    pub(crate) fn new(base: Base) -> Self {
        Self {
            base,
            zones: OnceLock::new(),
        }
    }
}

/// Where the descriptor of a group is.
struct DescPlace {
    block: FsBlock,
    /// Its first byte in the block.
    offset: usize,
    part: Part,
}

impl Deref for Groups {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

/// The blocks that no file may own: superblocks, descriptors and blocks reserved for more of them, bitmaps,
/// inode tables. Ranges `start..end`, ascending, neither overlapping nor adjacent.
pub(crate) struct Zones(Box<[(u64, u64)]>);

impl Zones {
    /// The zones that overlap `start..end`.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.0.partition_point(|zone| zone.1 <= start);
        let rest = self.0.get(first..).unwrap_or_default();
        rest.iter().copied().take_while(move |zone| zone.0 < end)
    }

    /// Sorts ranges and merges adjacent ones. Overlapping ranges mean that the volume is damaged.
    fn join(mut ranges: Vec<(u64, u64)>) -> Result<Vec<(u64, u64)>> {
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges {
            match merged.last_mut() {
                Some(last) if start < last.1 => {
                    return Err(Error::corrupt("two ranges of fixed metadata overlap")
                        .in_block(FsBlock(start)));
                }
                Some(last) if start == last.1 => last.1 = end,
                _ => merged.push((start, end)),
            }
        }
        Ok(merged)
    }
}

impl Groups {
    /// The descriptor of a group. Its checksum and values are checked.
    ///
    /// # Errors
    /// Errors of reading its block; `Corrupt`.
    pub(crate) fn group_desc(&self, group: GroupNumber) -> Result<GroupDesc> {
        let place = self.desc_place(group)?;
        let bytes = self.read_part(place.block, place.part.index, |bytes| {
            self.check_desc_sum(&place, bytes)
        })?;
        self.parse_desc(&place, &bytes, GroupDesc::check)
            .map_err(|e| Error::from(e).in_block(place.block))
    }

    /// Checks the checksum of a descriptor in its block.
    fn check_desc_sum(&self, place: &DescPlace, block: &[u8]) -> core::result::Result<(), Corrupt> {
        let bytes = group_desc::bytes(&self.geo, block, place.offset)?;
        group_desc::verify_checksum(&self.geo, GroupNumber(place.part.number), bytes)
    }

    fn parse_desc(
        &self,
        place: &DescPlace,
        block: &[u8],
        check: fn(&GroupDesc, &Geometry, GroupNumber) -> core::result::Result<(), Corrupt>,
    ) -> core::result::Result<GroupDesc, Corrupt> {
        let desc = group_desc::read(&self.geo, block, place.offset)?;
        check(&desc, &self.geo, GroupNumber(place.part.number))?;
        Ok(desc)
    }

    /// As [`Groups::group_desc`], for callers that only need the location of a group's metadata: the counts
    /// need not be valid, nor, on a volume that is not written, the checksum. `check` validates the
    /// locations. Also returns whether the whole descriptor is valid.
    ///
    /// # Errors
    /// As [`Groups::group_desc`].
    fn placed_desc(
        &self,
        group: GroupNumber,
        check: fn(&GroupDesc, &Geometry, GroupNumber) -> core::result::Result<(), Corrupt>,
    ) -> Result<(GroupDesc, bool)> {
        let damage = match self.group_desc(group) {
            Err(Error::Corrupt(damage)) => damage,
            found => return Ok((found?, true)),
        };
        let place = self.desc_place(group)?;
        let bytes = match self.is_as_found() {
            true => self.read(place.block)?,
            false => self.read_part(place.block, place.part.index, |bytes| {
                self.check_desc_sum(&place, bytes)
            })?,
        };
        let desc = self
            .parse_desc(&place, &bytes, check)
            .map_err(|e| Error::from(e).in_block(place.block))?;
        self.count_damage(&damage);
        Ok((desc, false))
    }

    /// First block of a group's inode table.
    ///
    /// # Errors
    /// Errors of reading the descriptor's block; `Corrupt` if the table's location is impossible.
    pub(crate) fn inode_table(&self, group: GroupNumber) -> Result<FsBlock> {
        let (desc, _) = self.placed_desc(group, GroupDesc::check_inode_table)?;
        Ok(desc.inode_table())
    }

    /// Free blocks and inodes of a group according to its descriptor; 0 if its values are invalid.
    ///
    /// # Errors
    /// Errors of reading the descriptor's block; `Corrupt` for a wrong checksum or impossible locations.
    pub(crate) fn free_counts(&self, group: GroupNumber) -> Result<(u32, u32)> {
        Ok(match self.placed_desc(group, GroupDesc::check_places)? {
            (desc, true) => (desc.free_blocks(), desc.free_inodes()),
            (_, false) => (0, 0),
        })
    }

    /// Changes the descriptor of a group (1 credit), under its buffer's lock. Its checksum is computed when
    /// the transaction is sealed. Blocks and inodes of a group are allocated under different locks, so a
    /// change sets its own fields and leaves the current values of the others.
    ///
    /// # Errors
    /// Errors of the journal; `Corrupt`.
    pub(crate) fn change_group_desc(
        &self,
        h: &mut Handle<'_>,
        group: GroupNumber,
        change: impl FnOnce(&mut GroupDesc),
    ) -> Result<()> {
        let place = self.desc_place(group)?;
        let end = place.offset.saturating_add(self.geo.desc_bytes.into());
        h.modify_part(
            place.block,
            (place.part, &self.sums.group_desc),
            |bytes| {
                self.check_desc_sum(&place, bytes)?;
                self.parse_desc(&place, bytes, GroupDesc::check).map(drop)
            },
            |bytes| {
                let mut desc = group_desc::read(&self.geo, bytes, place.offset)?;
                change(&mut desc);
                if let Some(bytes) = bytes.get_mut(place.offset..end) {
                    desc.write(bytes);
                }
                Ok(())
            },
        )?
        .map_err(|e: Corrupt| Error::from(e).in_block(place.block))
    }

    fn desc_place(&self, group: GroupNumber) -> Result<DescPlace> {
        if group.0 >= self.geo.groups {
            return Err(Error::corrupt(format!("group {group} does not exist")));
        }
        let (block, offset) = self.geo.desc_place(group);
        let index = offset / usize::from(self.geo.desc_bytes).max(1);
        Ok(DescPlace {
            block,
            offset,
            part: Part {
                index: index as u32,
                number: group.0,
            },
        })
    }

    /// The fixed metadata of the whole volume.
    ///
    /// # Errors
    /// Errors of reading the descriptors; `Corrupt` if they contradict each other.
    pub(crate) fn zones(&self) -> Result<&Zones> {
        if let Some(zones) = self.zones.get() {
            return Ok(zones);
        }
        let zones = self.read_zones()?;
        Ok(self.zones.get_or_init(|| zones))
    }

    /// The fixed metadata of one group, as ranges `start..end`: copies of superblock and descriptors,
    /// bitmaps, inode table.
    pub(crate) fn own_metadata(
        &self,
        group: GroupNumber,
    ) -> Result<impl Iterator<Item = (u64, u64)> + use<>> {
        let (desc, _) = self.placed_desc(group, GroupDesc::check_places)?;
        let own = [
            (
                self.geo.group_first_block(group),
                self.geo.fixed_blocks(group),
            ),
            (desc.block_bitmap(), 1),
            (desc.inode_bitmap(), 1),
            (desc.inode_table(), self.geo.inode_table_blocks),
        ];
        let own = own.into_iter().filter(|(_, len)| *len != 0);
        Ok(own.map(|(FsBlock(start), len)| (start, start.saturating_add(len.into()))))
    }

    fn read_zones(&self) -> Result<Zones> {
        let mut ranges = Vec::new();
        let mut join_at = JOIN_AT;
        for group in (0..self.geo.groups).map(GroupNumber) {
            self.read_descriptors_ahead(group);
            match self.own_metadata(group) {
                Ok(own) => ranges.extend(own),
                Err(Error::Corrupt(damage)) => {
                    self.count_damage(&damage);
                    ranges.extend(self.plausible_metadata(group)?);
                }
                Err(error) => return Err(error),
            }
            if ranges.len() >= join_at {
                ranges = self.join_zones(ranges)?;
                join_at = ranges.len().saturating_mul(2).max(JOIN_AT);
            }
        }
        Ok(Zones(self.join_zones(ranges)?.into()))
    }

    /// Merges ranges. On a volume that is not written, overlapping ranges are merged too.
    fn join_zones(&self, mut ranges: Vec<(u64, u64)>) -> Result<Vec<(u64, u64)>> {
        if self.is_as_found() {
            ranges.sort_unstable();
            let mut end = 0;
            for range in &mut ranges {
                *range = (range.0.max(end), range.1.max(end));
                end = range.1;
            }
            ranges.retain(|range| range.0 < range.1);
        }
        Zones::join(ranges)
    }

    /// As [`Groups::own_metadata`], for a group with a damaged descriptor: only the plausible ranges.
    fn plausible_metadata(&self, group: GroupNumber) -> Result<Vec<(u64, u64)>> {
        let FsBlock(first) = self.geo.group_first_block(group);
        let fixed = first.saturating_add(self.geo.fixed_blocks(group).into());
        let mut own = vec![(first, fixed)];
        let place = self.desc_place(group)?;
        let desc = group_desc::read(&self.geo, &self.read(place.block)?, place.offset)
            .map_err(|e| Error::from(e).in_block(place.block))?;
        let tables = self.geo.inode_table_blocks.into();
        for (FsBlock(start), len) in [
            (desc.block_bitmap(), 1),
            (desc.inode_bitmap(), 1),
            (desc.inode_table(), tables),
        ] {
            if self.geo.holds_blocks(FsBlock(start), len) {
                own.push((start, start.saturating_add(len)));
            }
        }
        own.retain(|range| range.0 < range.1);
        Ok(own)
    }

    /// If `group` is the first of a run of descriptor blocks, starts reading the whole run ahead.
    pub(crate) fn read_descriptors_ahead(&self, group: GroupNumber) {
        let (index, offset) = self.geo.desc_index(group);
        if offset != 0 || index % READ_AHEAD_BLOCKS != 0 {
            return;
        }
        let end = index
            .saturating_add(READ_AHEAD_BLOCKS)
            .min(self.geo.desc_blocks);
        let blocks: Vec<FsBlock> = (index..end)
            .map(|index| self.geo.desc_block(index))
            .collect();
        self.journal.readahead(&blocks);
    }

    /// The part of a bitmap's checksum that the descriptor has room for.
    pub(crate) fn kept_csum(&self, csum: u32) -> u32 {
        if self.geo.desc_bytes >= DESC_BYTES_64BIT {
            csum
        } else {
            csum & 0xFFFF
        }
    }
}

/// Compares the checksum of a group's bitmap with the one in its descriptor.
pub(crate) fn check_csum(
    what: &str,
    group: GroupNumber,
    found: u32,
    right: u32,
) -> core::result::Result<(), Corrupt> {
    if found == right {
        return Ok(());
    }
    Err(Corrupt::new(format!(
        "checksum of the {what} of group {group} is {found:#010x}, should be {right:#010x}"
    )))
}
