//! Telling the device which blocks it need not keep: on request ([`Blocks::trim`], `FITRIM`), or whatever a commit has freed
//! (`-o discard`).
//!
//! Invariants:
//! - Only blocks are discarded that nobody has and that no crash can bring back to anybody: clear in their group's map, or
//!   freed in a transaction that is durable and still waiting ([`super::awaiting`]).
//! - Nobody can claim a block while it is discarded: on request that is done under the group's lock; what was freed is
//!   not in the map before it is done.
//! - The group's lock is held for a few long discards at a time.

use std::ops::Range;
use std::sync::atomic::Ordering;

use throughline_extfmt::{FsBlock, GroupNumber};

use super::Blocks;
use super::map::BlockMap;
use crate::error::{Error, Reason, Result};

/// Free runs that are discarded under the lock of their group before others have a turn.
const RUNS_AT_ONCE: usize = 32;
/// And blocks, so that none of them keeps it for long.
const BLOCKS_AT_ONCE: u32 = 16384;

/// What of a group is to be discarded, in bits and blocks.
struct Wanted {
    end: u32,
    least: u32,
}

/// What was discarded under one hold of a group's lock.
struct Step {
    /// Where to go on; `None` where the group is done.
    next: Option<u32>,
    blocks: u64,
}

impl Blocks {
    /// Tells the device of the free blocks between two bytes of the volume, in runs of at least `least_bytes`, that their
    /// content is no longer needed. Answers how many bytes it was told of. Blocks whose freeing is not durable are left out.
    ///
    /// # Errors
    /// `Invalid` for a range that begins behind the volume or has not a block in it, or runs longer than a group;
    /// `Unsupported` where the device cannot use it; `ReadOnly`; those of reading bitmaps; those of the device.
    pub fn trim(&self, range: Range<u64>, least_bytes: u64) -> Result<u64> {
        self.check_writable()?;
        let block_bytes = u64::from(self.geo.block_bytes);
        let group_bytes = block_bytes.saturating_mul(self.geo.clusters_per_group.into());
        if range.end.saturating_sub(range.start) < block_bytes
            || range.start >> self.geo.block_log >= self.geo.blocks
            || least_bytes > group_bytes
        {
            return Err(Reason::Invalid("a range to trim that is none of this volume").into());
        }
        if !self.disk.limits().discard {
            return Err(no_discard());
        }
        self.settle_freed();
        let first = range
            .start
            .div_ceil(block_bytes)
            .max(self.geo.first_data_block.0);
        let end = (range.end >> self.geo.block_log).min(self.geo.blocks);
        let least = least_bytes.div_ceil(block_bytes).max(1) as u32;
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

    /// Discards the blocks whose freeing has become durable, and gives them to the maps then. Locks of files may be held, none
    /// behind those.
    pub(crate) fn trim_freed(&self) {
        // Whoever looks for room waits for what another is discarding.
        let _one_at_a_time = self.balloc.awaiting.lock_trimming();
        loop {
            let durable = self.take_durable();
            if durable.is_empty() {
                return;
            }
            for freed in durable {
                let group_start = self.geo.group_first_block(freed.group).0;
                let start = group_start.saturating_add(freed.first.into());
                if self.balloc.discards()
                    && let Err(error) = discard(self, start, freed.len)
                {
                    // The volume is none the worse for it.
                    self.balloc.discards.store(false, Ordering::Release);
                    tracing::warn!(%error, "freed blocks are no longer discarded");
                }
                self.settle_one(&freed);
            }
        }
    }
}

/// Whether a group may have a free run of so many blocks, without reading its bitmap.
fn may_have(fs: &Blocks, group: GroupNumber, least: u32) -> bool {
    // What cannot be read is for the reading of its bitmap to say.
    fs.most_in(group).map_or(true, |most| most >= least)
}

/// Some discards under the lock of a group.
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
        discard(fs, group_start.saturating_add(run.first.into()), run.len)?;
        runs += 1;
        blocks = blocks.saturating_add(run.len);
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
