//! Removes mappings from a tree, from the end of a range to its beginning.

use smallvec::SmallVec;

use super::super::store::{Budget, NodesMut};
use super::change::{Plan, change, shrink};
use super::node::{Extent, clip};
use super::{END, check_extent};
use crate::error::Result;

/// Unmaps blocks in `from..to`, the last first, as many as `budget` allows, and passes each run to `freed`.
/// Returns the end of the rest of the range; `None` if nothing in it is mapped.
///
/// # Errors
/// No space, if the middle of an extent is removed and its leaf is full; nothing has changed then.
pub(crate) fn remove<S: NodesMut>(
    store: &mut S,
    from: u64,
    to: u64,
    mut budget: Budget,
    mut freed: impl FnMut(Extent),
) -> Result<Option<u64>> {
    let mut to = to.min(END);
    while from < to && !budget.is_spent() {
        let mut gone: SmallVec<[Extent; 8]> = SmallVec::new();
        let found = change(store, (to - 1) as u32, |store, leaf, pos, _| {
            gone.clear();
            // The extents within range and budget; the first may keep its front.
            let (mut first, mut from) = (pos, from);
            let mut left = budget;
            while first > 0 && !left.is_spent() && leaf.extent(first - 1).end() > from {
                first -= 1;
                let part = clip(&leaf.extent(first), from, to);
                from = from.max(part.end().saturating_sub(left.blocks.into()));
                left.spend(part.len);
            }
            if first == pos {
                return Ok(None);
            }
            let mut plan = Plan {
                from: first,
                to: pos,
                new: SmallVec::new(),
            };
            for extent in (first..pos).map(|at| leaf.extent(at)) {
                check_extent(store, &extent)?;
                if u64::from(extent.block.0) < from {
                    plan.new.push(clip(&extent, 0, from));
                }
                if extent.end() > to {
                    plan.new.push(clip(&extent, to, END));
                }
                gone.push(clip(&extent, from, to));
            }
            Ok(Some(plan))
        })?;
        if !found {
            to = from;
            break;
        }
        gone.iter().for_each(|e| budget.spend(e.len));
        to = gone.first().map_or(from, |e| e.block.0.into());
        gone.drain(..).for_each(&mut freed);
    }
    shrink(store)?;
    Ok((from < to).then_some(to))
}
