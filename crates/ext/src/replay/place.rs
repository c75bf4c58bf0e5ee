//! Checks that the journal does not overlap other structures: writing a log over an inode table would destroy
//! the volume.
//!
//! It checks the groups that the journal touches and all groups of their flexible groups, where `mke2fs`
//! puts their metadata: a few descriptors, whatever the size of the volume.

use std::collections::BTreeSet;

use throughline_extfmt::features::Incompat;
use throughline_extfmt::{FsBlock, GroupNumber};
use throughline_journal::recovery::JournalRun;

use crate::error::{Error, Result};
use crate::groups::Groups;

/// Fails if journal blocks overlap each other or the volume's metadata.
pub(super) fn check(fs: &Groups, runs: &[JournalRun]) -> Result<()> {
    let mut ranges: Vec<(u64, u64)> = runs
        .iter()
        .map(|run| (run.first.0, run.first.0.saturating_add(run.len.into())))
        .collect();
    ranges.sort_unstable();
    if let Some(pair) = ranges.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        return Err(
            Error::corrupt("two blocks of the journal are the same").in_block(FsBlock(pair[1].0))
        );
    }
    for group in groups(fs, &ranges) {
        for (start, end) in fs.own_metadata(group)? {
            let at = ranges.partition_point(|range| range.1 <= start);
            if let Some(range) = ranges.get(at).filter(|range| range.0 < end) {
                let block = FsBlock(range.0.max(start));
                return Err(
                    Error::corrupt("the journal lies on the volume's own structures")
                        .in_block(block),
                );
            }
        }
    }
    Ok(())
}

/// The groups that the ranges touch, extended to whole flexible groups.
fn groups(fs: &Groups, ranges: &[(u64, u64)]) -> BTreeSet<GroupNumber> {
    let flexible = match fs.geo.incompat.contains(Incompat::FLEX_BG) {
        true => 1 << fs.superblock.lock().s_log_groups_per_flex.min(31),
        false => 1u32,
    };
    let touched = ranges.iter().filter_map(|range| {
        let first = fs.geo.group_of_block(FsBlock(range.0))?;
        let last = fs.geo.group_of_block(FsBlock(range.1.saturating_sub(1)))?;
        Some(first.0 / flexible..=last.0 / flexible)
    });
    let flexible_groups: BTreeSet<u32> = touched.flatten().collect();
    let whole = |number: u32| {
        let first = number.saturating_mul(flexible);
        first..first.saturating_add(flexible).min(fs.geo.groups)
    };
    flexible_groups
        .into_iter()
        .flat_map(whole)
        .map(GroupNumber)
        .collect()
}
