//! The search from a goal to a claimed run.
//!
//! 1. At the goal exactly, if enough is free there, so that a growing file stays contiguous.
//! 2. The next run in the goal's group that is long enough, then in the groups after it. Groups that cannot
//!    have one, by their free count or by an earlier search, are skipped.
//! 3. A group whose bitmap or descriptor is damaged is recorded and skipped from then on.
//! 4. The longest run seen so far; if there was none, any free block of the volume.

use throughline_extfmt::{FsBlock, GroupNumber};

use super::Blocks;
use super::Run;
use super::map::{BlockMap, FreeRun};
use crate::error::{Reason, Result};

/// A run of this many blocks is always long enough.
const LONG_ENOUGH: u32 = 8192;
/// At the goal, this many blocks are enough: contiguity matters more than length.
const ENOUGH_AT_GOAL: u32 = 16;
/// Groups whose descriptors are checked for a run that is long enough, before a shorter one is taken.
const GROUPS_LOOKED_AT: u32 = 512;
/// Groups whose bitmaps are searched for a run that is long enough.
const GROUPS_SEARCHED: u32 = 32;
/// A run may be claimed by another thread after it was seen. After this many attempts the search fails with
/// no space.
const TRIES: u32 = 16;

/// Where to search, and for how much, in clusters.
struct Wanted {
    /// The goal's group.
    group: u32,
    /// The goal's bit there.
    bit: u32,
    want: u32,
    enough: u32,
    enough_at_goal: u32,
}

impl Blocks {
    /// Claims a run of 1 to `want` clusters. The caller holds a promise for them.
    pub(super) fn find_run(&self, goal: FsBlock, want: u32) -> Result<Run> {
        let (group, bit) = match self.geo.group_of_block(goal) {
            Some(group) => (
                group.0,
                (goal.0.saturating_sub(self.geo.group_first_block(group).0)
                    >> self.geo.cluster_ratio_log) as u32,
            ),
            None => (0, 0),
        };
        let wanted = Wanted {
            group,
            bit,
            want,
            enough: want.min((LONG_ENOUGH >> self.geo.cluster_ratio_log).max(1)),
            enough_at_goal: want.min((ENOUGH_AT_GOAL >> self.geo.cluster_ratio_log).max(1)),
        };
        for _ in 0..TRIES {
            if let Some(run) = find_long_run(self, &wanted)? {
                return Ok(run);
            }
            if let Some(run) = find_any_run(self, &wanted)? {
                return Ok(run);
            }
        }
        Err(Reason::NoSpace.into())
    }

    /// Upper bound on a group's longest free run, without reading its bitmap.
    pub(super) fn most_in(&self, group: GroupNumber) -> Result<u32> {
        if self.balloc.is_passed_over(group) {
            return Ok(0);
        }
        if let Some(group) = self.balloc.groups.get(group)
            && let Some(map) = group.lock().as_ref()
        {
            return Ok(map.longest());
        }
        let desc = self.group_desc(group);
        let Some(desc) = self.around_damage(desc)? else {
            pass_over(self, group);
            return Ok(0);
        };
        Ok(desc.free_blocks())
    }
}

/// All steps in the head of this file except the last resort.
fn find_long_run(fs: &Blocks, wanted: &Wanted) -> Result<Option<Run>> {
    let mut best: Option<(GroupNumber, FreeRun)> = None;
    let mut searched = 0;
    for step in 0..fs.geo.groups.min(GROUPS_LOOKED_AT) {
        let group = group_after(fs, wanted.group, step);
        let most = fs.most_in(group)?;
        if most == 0 || step > 0 && most < wanted.enough {
            continue;
        }
        let goal = if step == 0 { wanted.bit } else { 0 };
        let found = search_group(fs, group, |map| search_map(map, wanted, goal))?;
        match found.flatten() {
            Some(Found::Claimed(run)) => return Ok(Some(run_of(fs, group, run))),
            Some(Found::Short(run)) if best.is_none_or(|(_, best)| run.len > best.len) => {
                best = Some((group, run));
            }
            _ => {}
        }
        searched += 1;
        if searched >= GROUPS_SEARCHED {
            break;
        }
    }
    match best {
        Some((group, run)) => claim_at(fs, group, run),
        None => Ok(None),
    }
}

/// The longest run of the first group that has any.
fn find_any_run(fs: &Blocks, wanted: &Wanted) -> Result<Option<Run>> {
    for step in 0..fs.geo.groups {
        let group = group_after(fs, wanted.group, step);
        if fs.most_in(group)? == 0 {
            continue;
        }
        let found = search_group(fs, group, |map| {
            let run = map.find(0, wanted.want, wanted.want)?;
            map.claim(run);
            Some(run)
        })?;
        if let Some(run) = found.flatten() {
            return Ok(Some(run_of(fs, group, run)));
        }
    }
    Ok(None)
}

/// Claims what is left of a run seen earlier.
fn claim_at(fs: &Blocks, group: GroupNumber, seen: FreeRun) -> Result<Option<Run>> {
    let claimed = fs.with_map(group, |map| {
        let run = map.run_at(seen.first, seen.len)?;
        map.claim(run);
        Some(run)
    })?;
    Ok(claimed.map(|run| run_of(fs, group, run)))
}

/// As [`Blocks::with_map`], but `None` for a damaged group.
fn search_group<R>(
    fs: &Blocks,
    group: GroupNumber,
    f: impl FnOnce(&mut BlockMap) -> R,
) -> Result<Option<R>> {
    let found = fs.with_map(group, f);
    let found = fs.around_damage(found)?;
    if found.is_none() {
        pass_over(fs, group);
    }
    Ok(found)
}

/// Excludes a damaged group from allocation. Blocks that its descriptor counts as free become unavailable.
fn pass_over(fs: &Blocks, group: GroupNumber) {
    let free = fs.free_counts(group).map_or(0, |(blocks, _)| blocks);
    fs.balloc.pass_over(group, free);
}

fn group_after(fs: &Blocks, group: u32, step: u32) -> GroupNumber {
    let sum = u64::from(group) + u64::from(step);
    GroupNumber((sum % u64::from(fs.geo.groups.max(1))) as u32)
}

fn run_of(fs: &Blocks, group: GroupNumber, run: FreeRun) -> Run {
    let start = fs
        .geo
        .group_first_block(group)
        .0
        .saturating_add(u64::from(run.first) << fs.geo.cluster_ratio_log);
    Run {
        start: FsBlock(start),
        len: run.len << fs.geo.cluster_ratio_log,
    }
}

/// What a search found in a group.
enum Found {
    /// A run that is long enough; it is claimed.
    Claimed(FreeRun),
    /// A run that is too short; it is not claimed.
    Short(FreeRun),
}

fn search_map(map: &mut BlockMap, wanted: &Wanted, goal: u32) -> Option<Found> {
    let at_goal = map
        .run_at(goal, wanted.want)
        .filter(|run| run.len >= wanted.enough_at_goal);
    let run = match at_goal {
        Some(run) => run,
        None => map.find(goal, wanted.enough, wanted.want)?,
    };
    if at_goal.is_some() || run.len >= wanted.enough {
        map.claim(run);
        return Some(Found::Claimed(run));
    }
    Some(Found::Short(run))
}
