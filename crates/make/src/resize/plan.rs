//! How far a volume can shrink, and in which stages.
//!
//! What is beyond the new end moves to free blocks before it. The metadata of groups that go may be before it
//! (`flex_bg`), and becomes free only with the cut. So a volume that becomes nearly full shrinks in stages:
//! each goes as far as the free blocks reach, and frees the metadata of the groups that it cuts off.
//!
//! ```text
//! │ kept                     limit │ metadata │ files │ free │   files ≤ free blocks before the limit
//! ```
//!
//! Which blocks of files are beyond the limit does not matter for that: of the blocks there, those that are
//! neither metadata nor free have to find room, and what is free there is not free before it. So a limit is
//! possible if all blocks beyond it but the metadata are at most as many as are free in the whole volume.
//!
//! Inodes do not move without a journal, which would not be safe, nor with `stable_inodes`. Then all groups
//! up to the last one with inodes in use remain.

use throughline_extfmt::features::{Compat, Incompat};
use throughline_extfmt::{FsBlock, Geometry, GroupDesc, GroupNumber, Superblock};

use super::shape::{self, fixed_metadata};
use crate::error::{Error, Result};

/// Blocks that moving may need beside what moves, for the mapping of the journal and of files in more pieces.
const SPARE: u64 = 12;
/// Of the blocks in use, at most one in so many is planned for more pieces.
const PIECES_SHARE: u64 = 200;

/// What a volume holds, as far as it matters for how far it can shrink.
pub struct Contents<'v> {
    /// The superblock, with current counts.
    pub superblock: &'v Superblock,
    /// The descriptors of all groups.
    pub descs: &'v [GroupDesc],
    /// Blocks that are marked as used, and will be freed.
    pub ownerless: u64,
    /// Runs of free blocks.
    pub free_runs: u64,
}

/// A way to a smaller volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stages {
    /// The sizes, in blocks, one after the other; the last is the one that was asked for.
    pub blocks: Vec<u64>,
}

struct Planner<'v> {
    contents: &'v Contents<'v>,
    old: Geometry,
    /// Blocks of files.
    movable: u64,
    /// Blocks that stay free in each stage.
    spare: u64,
    /// Groups that the inodes in use need; if these do not move, those up to where they are.
    groups: u32,
}

/// A volume of one of the sizes on the way.
struct Stage {
    geo: Geometry,
    free: u64,
    /// Where its metadata is, ascending, and how much of it there is from each on.
    zones: Vec<(u64, u64)>,
    beyond: Vec<u64>,
}

/// The stages to `blocks` blocks, or to as few as possible.
///
/// # Errors
/// `Invalid` if it is not possible, with the smallest size that is.
pub fn stages(contents: &Contents<'_>, blocks: Option<u64>) -> Result<Stages> {
    let planner = Planner::new(contents)?;
    let smallest = |stages: &[u64]| stages.last().copied().unwrap_or(planner.old.blocks);
    let Some(asked) = blocks else {
        let floor = planner.allowed_from(0)?;
        return Ok(Stages {
            blocks: planner.towards(floor, planner.spare)?,
        });
    };
    let found = shape::shrunk(contents.superblock, &planner.old, asked);
    // Too small for any volume: as small as none.
    let blocks = found.map_or(0, |(_, geo)| geo.blocks);
    let allowed = planner.allowed_from(blocks)?;
    if allowed == blocks {
        // A second run may find some of the blocks in use that the first one kept free.
        let mut spare = planner.spare;
        loop {
            let stages = planner.towards(blocks, spare)?;
            if smallest(&stages) == blocks {
                return Ok(Stages { blocks: stages });
            }
            if spare == 0 {
                break;
            }
            spare = spare * 3 / 4;
        }
    }
    let least = smallest(&planner.towards(planner.allowed_from(0)?, planner.spare)?);
    let least = planner.allowed_from(least.max(blocks))?;
    let bytes = |blocks: u64| blocks.saturating_mul(planner.old.block_bytes.into());
    let why = fixes_inodes(&planner.old).unwrap_or_default();
    Err(Error::invalid(format!(
        "the size is too small: at least {} bytes ({least} blocks) are needed{why}",
        bytes(least)
    )))
}

/// What shrinking the volume of `sb` to `blocks` blocks gives, or fewer, if the last group would be too
/// small.
///
/// # Errors
/// `Invalid`.
pub fn shrunk(sb: &Superblock, blocks: u64) -> Result<(Superblock, Geometry)> {
    shape::shrunk(sb, &Geometry::new(sb)?, blocks)
}

/// Why inodes cannot move, if they cannot.
fn fixes_inodes(geo: &Geometry) -> Option<&'static str> {
    if geo.compat.contains(Compat::STABLE_INODES) {
        return Some(", because inodes do not move with the feature stable_inodes");
    }
    (!geo.compat.contains(Compat::HAS_JOURNAL)).then_some(
        ", because inodes move only on a volume with a journal ('tune2fs -j IMAGE' adds one, and \
         'tune2fs -O ^has_journal IMAGE' removes it afterwards)",
    )
}

/// The number of groups up to the last one with inodes in use.
fn groups_with_inodes(descs: &[GroupDesc], geo: &Geometry) -> u32 {
    let in_use = |desc: &GroupDesc| desc.free_inodes() < geo.inodes_per_group;
    let last = descs.iter().rposition(in_use).unwrap_or(0);
    last as u32 + 1
}

impl<'v> Planner<'v> {
    fn new(contents: &'v Contents<'v>) -> Result<Planner<'v>> {
        let old = Geometry::new(contents.superblock)?;
        let in_groups = old.blocks - old.first_data_block.0;
        let free = contents.superblock.free_blocks_count() + contents.ownerless;
        let movable = in_groups
            .saturating_sub(fixed_metadata(&old))
            .saturating_sub(free);
        let used: u64 = contents
            .descs
            .iter()
            .map(|desc| u64::from(old.inodes_per_group.saturating_sub(desc.free_inodes())))
            .sum();
        let groups = match fixes_inodes(&old) {
            None => used.div_ceil(old.inodes_per_group.into()).max(1) as u32,
            Some(_) => groups_with_inodes(contents.descs, &old),
        };
        let pieces = match old.incompat.contains(Incompat::EXTENTS) {
            true => contents.free_runs.min(movable / PIECES_SHARE),
            false => 0,
        };
        let journal = u64::from(old.compat.contains(Compat::HAS_JOURNAL));
        Ok(Planner {
            contents,
            movable,
            spare: SPARE * journal + pieces,
            groups,
            old,
        })
    }

    /// The geometry of a size, if a volume can have exactly this one.
    fn exact(&self, blocks: u64) -> Option<Geometry> {
        let found = shape::shrunk(self.contents.superblock, &self.old, blocks);
        let (_, geo) = found.ok().filter(|(_, geo)| geo.blocks == blocks)?;
        (geo.groups >= self.groups && self.end_of_fixed(&geo) <= blocks).then_some(geo)
    }

    /// The end of the metadata of the groups that remain.
    fn end_of_fixed(&self, geo: &Geometry) -> u64 {
        let ends = (0..geo.groups)
            .zip(self.contents.descs)
            .map(|(group, desc)| {
                let fixed = geo.group_first_block(GroupNumber(group)).0;
                (fixed + u64::from(geo.fixed_blocks(GroupNumber(group))))
                    .max(desc.block_bitmap().0 + 1)
                    .max(desc.inode_bitmap().0 + 1)
                    .max(desc.inode_table().0 + u64::from(geo.inode_table_blocks))
            });
        let mmp = match self.old.incompat.contains(Incompat::MMP) {
            true => self.contents.superblock.s_mmp_block.get() + 1,
            false => 0,
        };
        ends.max().unwrap_or(0).max(mmp)
    }

    /// The smallest size from `blocks` on that a volume can have.
    fn allowed_from(&self, blocks: u64) -> Result<u64> {
        let per_group = u64::from(self.old.blocks_per_group);
        let first = self.old.first_data_block.0;
        let least_groups = u64::from(self.groups);
        // The first size with this many groups.
        let floor = first + (least_groups - 1) * per_group + 1;
        let mut blocks = blocks.max(floor);
        while blocks < self.old.blocks {
            if self.exact(blocks).is_some() {
                return Ok(blocks);
            }
            // Within a group, a size is possible from some block on.
            let group_end =
                (first + (blocks - first).div_ceil(per_group) * per_group).min(self.old.blocks);
            let (mut low, mut high) = (blocks, group_end);
            if high == self.old.blocks || self.exact(high).is_some() {
                while low + 1 < high {
                    let middle = low + (high - low) / 2;
                    match self.exact(middle) {
                        Some(_) => high = middle,
                        None => low = middle,
                    }
                }
                return Ok(high);
            }
            blocks = group_end + 1;
        }
        Ok(self.old.blocks)
    }

    /// The stages to `target`, or as far as they lead. `spare` blocks stay free in each.
    fn towards(&self, target: u64, spare: u64) -> Result<Vec<u64>> {
        let mut stages = Vec::new();
        let free = self.contents.superblock.free_blocks_count() + self.contents.ownerless;
        let mut stage = self.stage(self.old.clone(), free);
        while stage.geo.blocks > target {
            let limit = self.allowed_from(stage.lowest(target, spare))?;
            if limit >= stage.geo.blocks {
                break;
            }
            let Some(geo) = self.exact(limit) else {
                break;
            };
            stages.push(limit);
            let in_groups = geo.blocks - geo.first_data_block.0;
            let free = in_groups.saturating_sub(fixed_metadata(&geo) + self.movable);
            stage = self.stage(geo, free);
        }
        Ok(stages)
    }

    fn stage(&self, geo: Geometry, free: u64) -> Stage {
        let mut zones = Vec::new();
        for (group, desc) in (0..geo.groups).map(GroupNumber).zip(self.contents.descs) {
            let FsBlock(first) = geo.group_first_block(group);
            zones.push((first, first + u64::from(geo.fixed_blocks(group))));
            zones.push((desc.block_bitmap().0, desc.block_bitmap().0 + 1));
            zones.push((desc.inode_bitmap().0, desc.inode_bitmap().0 + 1));
            let table = desc.inode_table().0;
            zones.push((table, table + u64::from(geo.inode_table_blocks)));
        }
        zones.retain(|zone| zone.0 < zone.1);
        zones.sort_unstable();
        let mut beyond = vec![0; zones.len() + 1];
        for at in (0..zones.len()).rev() {
            beyond[at] = beyond[at + 1] + zones[at].1 - zones[at].0;
        }
        Stage {
            geo,
            free,
            zones,
            beyond,
        }
    }
}

impl Stage {
    /// Blocks of metadata from `limit` on.
    fn metadata_beyond(&self, limit: u64) -> u64 {
        let at = self.zones.partition_point(|zone| zone.1 <= limit);
        let cut = self
            .zones
            .get(at)
            .map_or(0, |zone| limit.saturating_sub(zone.0));
        self.beyond[at] - cut
    }

    /// The smallest limit, at least `target`, beyond which there is not more than is free.
    fn lowest(&self, target: u64, spare: u64) -> u64 {
        let room = self.free.saturating_sub(spare);
        let fits = |limit: u64| self.geo.blocks - limit - self.metadata_beyond(limit) <= room;
        let (mut low, mut high) = (target, self.geo.blocks);
        if fits(low) {
            return low;
        }
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            match fits(middle) {
                true => high = middle,
                false => low = middle,
            }
        }
        high
    }
}
