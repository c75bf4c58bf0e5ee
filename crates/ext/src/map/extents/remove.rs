//! Taking mappings out of a tree, from the end of a range to its beginning.

use smallvec::SmallVec;

use super::super::store::NodesMut;
use super::change::{Plan, change, shrink};
use super::node::{Extent, clip};
use super::{END, check_extent};
use crate::error::Result;

/// Takes mapped blocks out of `from..to`, the last ones first, `most` extents at most, and hands each to `freed` (in
/// pieces that lie within the range). Answers the end of what is left of the range; `None` when nothing in it is mapped.
///
/// # Errors
/// No space, where the middle of an extent goes and its leaf is full; nothing has changed then.
pub(crate) fn remove<S: NodesMut>(
    store: &mut S,
    from: u64,
    to: u64,
    most: usize,
    mut freed: impl FnMut(Extent),
) -> Result<Option<u64>> {
    let mut to = to.min(END);
    let mut left = most;
    while from < to && left > 0 {
        let mut gone: SmallVec<[Extent; 8]> = SmallVec::new();
        let found = change(store, (to - 1) as u32, |store, leaf, pos, _| {
            gone.clear();
            let mut first = pos;
            while first > 0 && pos - first < left && leaf.extent(first - 1).end() > from {
                first -= 1;
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
        left -= gone.len().min(left);
        to = gone.first().map_or(from, |e| e.block.0.into());
        gone.drain(..).for_each(&mut freed);
    }
    shrink(store)?;
    Ok((from < to).then_some(to))
}
