//! Removes blocks from an indirect map, from the end of a range to its beginning.

use smallvec::SmallVec;
use throughline_extfmt::indirect::IndirectGeometry;
use throughline_extfmt::{FileBlock, FsBlock};

use super::super::extents::Extent;
use super::super::store::{Budget, NodesMut};
use super::{POINTER_BYTES, Route, pointer, set_pointer};
use crate::error::Result;

/// Unmaps blocks in `from..to`, the last first, as many as `budget` allows, and passes each run to `freed`;
/// tables that become empty are freed. Returns the end of the rest of the range; `None` if nothing in it is
/// mapped.
pub(crate) fn remove<S: NodesMut>(
    store: &mut S,
    from: u64,
    to: u64,
    mut budget: Budget,
    block_bytes: u32,
    mut freed: impl FnMut(Extent),
) -> Result<Option<u64>> {
    let mut to = to.min(IndirectGeometry::new(block_bytes).max_blocks());
    while from < to && !budget.is_spent() {
        let last = to - 1;
        let Some(route) = Route::new(last as u32, block_bytes) else {
            break;
        };
        let way = descend(store, &route)?;
        if way.len() < route.levels {
            // A table may be empty if space ran out before the tables below it were created.
            if clear(store, &route, &way, route.slots[way.len()])? {
                budget.spend(0);
            }
            let (into, _) = route.place(way.len());
            to = last.saturating_sub(into);
            continue;
        }
        let slot = route.slots[route.levels];
        let reach = (last - from).min(u64::from(budget.blocks) - 1);
        let lowest = slot - reach.min(slot as u64) as usize;
        let mut runs: SmallVec<[Extent; 8]> = SmallVec::new();
        let stop = match way.last() {
            Some((_, table)) => collect(table, lowest, slot, last as u32, budget.runs, &mut runs),
            None => collect(
                &store.root(),
                lowest,
                slot,
                last as u32,
                budget.runs,
                &mut runs,
            ),
        };
        for run in &runs {
            store
                .check_run(run.start, run.len)
                .map_err(|e| match way.last() {
                    Some((at, _)) => e.in_block(*at),
                    None => e,
                })?;
        }
        clear(store, &route, &way, stop)?;
        match runs.is_empty() {
            // A table was scanned.
            true => budget.spend(0),
            false => runs.iter().for_each(|run| budget.spend(run.len)),
        }
        runs.drain(..).for_each(&mut freed);
        to = last + 1 - (slot + 1 - stop) as u64;
    }
    Ok((from < to).then_some(to))
}

/// The existing tables on a route, with their bytes.
type Way<N> = SmallVec<[(FsBlock, N); 3]>;

fn descend<S: NodesMut>(store: &S, route: &Route) -> Result<Way<S::Node>> {
    let mut way: Way<S::Node> = SmallVec::new();
    for level in 0..route.levels {
        let next = match way.last() {
            Some((_, table)) => pointer(table, route.slots[level]),
            None => pointer(&store.root(), route.slots[level]),
        };
        if next == 0 {
            break;
        }
        let at = FsBlock(next.into());
        store.check_run(at, 1)?;
        way.push((at, store.node(at)?));
    }
    Ok(way)
}

/// Collects the runs in slots `lowest..=slot`, the last first, at most `most`; `last` is the file block of
/// `slot`. Returns the lowest slot processed.
fn collect(
    table: &[u8],
    lowest: usize,
    slot: usize,
    last: u32,
    most: usize,
    runs: &mut SmallVec<[Extent; 8]>,
) -> usize {
    for at in (lowest..=slot).rev() {
        let block = u64::from(pointer(table, at));
        if block == 0 {
            continue;
        }
        let start = last - (slot - at) as u32;
        let full = runs.len() == most;
        match runs.last_mut() {
            Some(run) if run.start.0 == block + 1 && run.block.0 == start + 1 => {
                *run = Extent {
                    block: FileBlock(start),
                    start: FsBlock(block),
                    len: run.len + 1,
                    unwritten: false,
                };
            }
            _ if full => return at + 1,
            _ => runs.push(Extent {
                block: FileBlock(start),
                start: FsBlock(block),
                len: 1,
                unwritten: false,
            }),
        }
    }
    lowest
}

/// Clears the slots from `stop` to the route's own in the last table, and frees the tables that become empty.
/// Returns whether there were any.
fn clear<S: NodesMut>(
    store: &mut S,
    route: &Route,
    way: &Way<S::Node>,
    stop: usize,
) -> Result<bool> {
    let mut stop = stop;
    for (level, (at, table)) in way.iter().enumerate().rev() {
        let cleared = stop * POINTER_BYTES..(route.slots[level + 1] + 1) * POINTER_BYTES;
        let mut others = table[..cleared.start].iter().chain(&table[cleared.end..]);
        if others.any(|byte| *byte != 0) {
            if table[cleared.clone()].iter().any(|byte| *byte != 0) {
                store.edit(*at, |bytes| bytes[cleared].fill(0))?;
            }
            return Ok(level + 1 < way.len());
        }
        store.free(*at)?;
        stop = route.slots[level];
    }
    let slots = stop..route.slots[0] + 1;
    if slots.clone().any(|slot| pointer(&store.root(), slot) != 0) {
        store.edit_root(|root| slots.for_each(|slot| set_pointer(root, slot, 0)))?;
    }
    Ok(!way.is_empty())
}
