//! Discarding free blocks: on request ([`Blocks::trim`], `FITRIM`), or after each commit that freed blocks
//! (`-o discard`).
//!
//! Invariants:
//! - A block is discarded only if it has no owner and no crash can give it back to one: it is clear in its
//!   group's map, or was freed in a durable transaction and still waits ([`super::awaiting`]).
//! - A block cannot be claimed while it is discarded: a trim request holds the group's lock, and freed blocks
//!   enter the map only after their discard.
//! - The group's lock is held for a few long discards at a time.

use std::ops::Range;
use std::sync::atomic::Ordering;

use throughline_extfmt::{FsBlock, GroupNumber};

use super::Blocks;
use super::map::BlockMap;
use crate::error::{Error, Reason, Result};

/// Free runs discarded per hold of the group's lock.
const RUNS_AT_ONCE: usize = 32;
/// Blocks discarded per hold of the group's lock, so that it is not held for long.
const BLOCKS_AT_ONCE: u32 = 16384;

/// Which free runs of a group to discard: up to bit `end`, of at least `least` clusters.
struct Wanted {
    end: u32,
    least: u32,
}

/// What was discarded in one hold of a group's lock.
struct Step {
    /// Where to continue; `None` when the group is done.
    next: Option<u32>,
    blocks: u64,
}

impl Blocks {
    /// Discards the free blocks in a byte range of the volume, in runs of at least `least_bytes`. Returns the
    /// number of bytes discarded. Blocks whose freeing is not durable are left out.
    ///
    /// # Errors
    /// `Invalid` if the range begins past the end of the volume or is shorter than a block, or if
    /// `least_bytes` is more than a group; `Unsupported` if the device cannot discard; `ReadOnly`; errors of
    /// reading bitmaps; device errors.
    pub fn trim(&self, range: Range<u64>, least_bytes: u64) -> Result<u64> {
        self.check_writable()?;
        let block_bytes = u64::from(self.geo.block_bytes);
        let group_bytes = block_bytes.saturating_mul(self.geo.blocks_per_group.into());
        if range.end.saturating_sub(range.start) < block_bytes
            || range.start >> self.geo.block_log >= self.geo.blocks
            || least_bytes > group_bytes
        {
            return Err(Reason::Invalid("the range to trim is outside the volume").into());
        }
        if !self.disk.limits().discard {
            return Err(no_discard());
        }
        self.release_durable();
        let ratio_log = self.geo.cluster_ratio_log;
        let unit_bytes = block_bytes << ratio_log;
        // Only whole clusters.
        let first =
            (range.start.div_ceil(unit_bytes) << ratio_log).max(self.geo.first_data_block.0);
        let end = (range.end >> self.geo.block_log).min(self.geo.blocks) >> ratio_log << ratio_log;
        let least = least_bytes.div_ceil(unit_bytes).max(1) as u32;
        let mut blocks = 0u64;
        for (group, first, len) in self.by_group(FsBlock(first), end.saturating_sub(first)) {
            let wanted = Wanted {
                end: first.saturating_add(len),
                least,
            };
            let mut next = Some(first).filter(|_| may_have(self, group, least));
            while let Some(at) = next {
                self.check_up()?;
                let step =
                    self.with_map(group, |map| trim_some(self, map, group, at, &wanted))??;
                blocks = blocks.saturating_add(step.blocks);
                next = step.next;
            }
        }
        Ok(blocks.saturating_mul(block_bytes))
    }

    /// Discards the blocks whose freeing has become durable, then releases them to the maps. File locks may
    /// be held, but no lock that ranks after them.
    pub(crate) fn trim_freed(&self) {
        // A caller that needs space waits here for discards in progress.
        let _one_at_a_time = self.balloc.awaiting.lock_trimming();
        loop {
            let durable = self.take_durable();
            if durable.is_empty() {
                return;
            }
            for freed in durable {
                let group_start = self.geo.group_first_block(freed.group).0;
                let log = self.geo.cluster_ratio_log;
                let start = group_start.saturating_add(u64::from(freed.first) << log);
                if self.balloc.discards()
                    && let Err(error) = discard(self, start, freed.len << log)
                {
                    // Discarding is only an optimization: the volume is unaffected.
                    self.balloc.discards.store(false, Ordering::Release);
                    tracing::warn!(%error, "freed blocks are no longer discarded");
                }
                self.release_run(&freed);
            }
        }
    }
}

/// Whether a group may have a free run of `least` blocks, without reading its bitmap.
fn may_have(fs: &Blocks, group: GroupNumber, least: u32) -> bool {
    // Errors are reported when the bitmap is read.
    fs.most_in(group).map_or(true, |most| most >= least)
}

/// Discards some runs. The caller holds the group's lock.
fn trim_some(
    fs: &Blocks,
    map: &BlockMap,
    group: GroupNumber,
    mut at: u32,
    wanted: &Wanted,
) -> Result<Step> {
    let group_start = fs.geo.group_first_block(group).0;
    let (mut runs, mut blocks) = (0, 0u32);
    while let Some(run) = map.next_free(at..wanted.end) {
        if runs == RUNS_AT_ONCE || blocks >= BLOCKS_AT_ONCE {
            return Ok(Step {
                next: Some(run.first),
                blocks: blocks.into(),
            });
        }
        at = run.first.saturating_add(run.len);
        if run.len < wanted.least {
            continue;
        }
        let log = fs.geo.cluster_ratio_log;
        let start = group_start.saturating_add(u64::from(run.first) << log);
        discard(fs, start, run.len << log)?;
        runs += 1;
        blocks = blocks.saturating_add(run.len << log);
    }
    Ok(Step {
        next: None,
        blocks: blocks.into(),
    })
}

fn discard(fs: &Blocks, start: u64, blocks: u32) -> Result<()> {
    let log = fs.geo.block_log;
    match fs.disk.discard(start << log, u64::from(blocks) << log)? {
        true => Ok(()),
        false => Err(no_discard()),
    }
}

fn no_discard() -> Error {
    Error::Unsupported("discarding on this device".into())
}

#[cfg(test)]
mod tests;
