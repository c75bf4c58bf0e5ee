//! The limit of the allocator, for a volume that is to become smaller: no block from it on is offered. Blocks
//! in use there can be freed, and stay free.

use throughline_extfmt::{FsBlock, Geometry, GroupNumber};

use super::Blocks;
use crate::error::Result;

impl Blocks {
    /// From now on, offers no block from `limit` on. Once only, and while nothing is claimed or waits.
    ///
    /// # Errors
    /// Errors of reading descriptors and bitmaps; `Corrupt`.
    pub(crate) fn set_block_limit(&self, limit: FsBlock) -> Result<()> {
        let Some(GroupNumber(first)) = self.geo.group_of_block(limit) else {
            return Ok(());
        };
        let limit = BlockLimit(limit);
        let bit = limit.bit(&self.geo, GroupNumber(first));
        let mut lost = u64::from(self.with_map(GroupNumber(first), |map| map.withhold(bit))?);
        for group in (first.saturating_add(1)..self.geo.groups).map(GroupNumber) {
            self.read_descriptors_ahead(group);
            lost = lost.saturating_add(self.group_desc(group)?.free_blocks().into());
            if let Some(slot) = self.balloc.groups.get(group)
                && let Some(map) = slot.lock().as_mut()
            {
                map.withhold(0);
            }
        }
        // Maps that are loaded from now on have the limit.
        let _ = self.balloc.limit.set(limit);
        self.balloc.withhold(lost);
        Ok(())
    }
}

/// The first block that is not offered.
#[derive(Debug)]
pub(super) struct BlockLimit(FsBlock);

impl BlockLimit {
    /// The limit as a bit of a group's bitmap.
    pub(super) fn bit(&self, geo: &Geometry, group: GroupNumber) -> u32 {
        let within = self.0.0.saturating_sub(geo.group_first_block(group).0);
        u32::try_from(within >> geo.cluster_ratio_log).unwrap_or(u32::MAX)
    }
}

/// Withholds those of the freed blocks that are behind the limit. Returns the number of those before it.
pub(super) fn withhold_freed(
    blocks: &Blocks,
    group: GroupNumber,
    first: u32,
    len: u32,
) -> Result<u32> {
    let Some(limit) = blocks.balloc.limit.get() else {
        return Ok(len);
    };
    let kept = limit.bit(&blocks.geo, group).saturating_sub(first).min(len);
    let lost = len.saturating_sub(kept);
    if lost > 0 {
        blocks.with_map(group, |map| map.withheld(lost))?;
        blocks.balloc.withheld(lost);
    }
    Ok(kept)
}
