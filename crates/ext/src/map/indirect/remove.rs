//! Taking blocks out of an indirect map, from the end of a range to its beginning.

use smallvec::SmallVec;
use throughline_extfmt::{FileBlock, FsBlock};

use super::super::extents::Extent;
use super::super::store::NodesMut;
use super::{POINTER_BYTES, Route, capacity, pointer, set_pointer};
use crate::error::Result;

/// Takes mapped blocks out of `from..to`, the last ones first, `most` runs at most, and hands each run to `freed`; tables
/// that end up empty are freed. Answers the end of what is left of the range; `None` when nothing in it is mapped.
pub(crate) fn remove<S: NodesMut>(
    store: &mut S,
    from: u64,
    to: u64,
    most: usize,
    block_bytes: u32,
    mut freed: impl FnMut(Extent),
) -> Result<Option<u64>> {
    let mut to = to.min(capacity(block_bytes));
    let mut left = most;
    while from < to && left > 0 {
        let last = to - 1;
        let Some(route) = Route::new(last as u32, block_bytes) else {
            break;
        };
        let way = match descend(store, &route)? {
            Ok(way) => way,
            Err(missing) => {
                let (into, _) = route.place(missing);
                to = last.saturating_sub(into);
                continue;
            }
        };
        let slot = route.slots[route.levels];
        let lowest = slot - (last - from).min(slot as u64) as usize;
        let mut runs: SmallVec<[Extent; 8]> = SmallVec::new();
        let stop = match way.last() {
            Some((_, table)) => collect(table, lowest, slot, last as u32, left, &mut runs),
            None => collect(&store.root(), lowest, slot, last as u32, left, &mut runs),
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
        left = left.saturating_sub(runs.len().max(1));
        runs.drain(..).for_each(&mut freed);
        to = last + 1 - (slot + 1 - stop) as u64;
    }
    Ok((from < to).then_some(to))
}

/// The tables on the way with their bytes, or the level whose slot is empty.
type Way<N> = SmallVec<[(FsBlock, N); 3]>;

fn descend<S: NodesMut>(
    store: &S,
    route: &Route,
) -> Result<core::result::Result<Way<S::Node>, usize>> {
    let mut way: Way<S::Node> = SmallVec::new();
    for level in 0..route.levels {
        let next = match way.last() {
            Some((_, table)) => pointer(table, route.slots[level]),
            None => pointer(&store.root(), route.slots[level]),
        };
        if next == 0 {
            return Ok(Err(level));
        }
        let at = FsBlock(next.into());
        store.check_run(at, 1)?;
        way.push((at, store.node(at)?));
    }
    Ok(Ok(way))
}

/// Collects the runs of the slots `lowest..=slot`, the last first, as long as there are at most `most`; `last` is the file
/// block of `slot`. Answers the lowest slot that was seen.
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

/// Clears the slots from `stop` to the route's own in the last table, and frees the tables that this empties.
fn clear<S: NodesMut>(store: &mut S, route: &Route, way: &Way<S::Node>, stop: usize) -> Result<()> {
    let mut stop = stop;
    for (level, (at, table)) in way.iter().enumerate().rev() {
        let slots = stop..route.slots[level + 1] + 1;
        let bytes =
            |range: core::ops::Range<usize>| range.start * POINTER_BYTES..range.end * POINTER_BYTES;
        let cleared = bytes(slots.clone());
        let empty = table[..cleared.start]
            .iter()
            .chain(&table[cleared.end..])
            .all(|b| *b == 0);
        if !empty {
            if table[cleared.clone()].iter().any(|b| *b != 0) {
                store.edit(*at, |bytes| bytes[cleared].fill(0))?;
            }
            return Ok(());
        }
        store.free(*at)?;
        stop = route.slots[level];
    }
    let slots = stop..route.slots[0] + 1;
    store.edit_root(|root| slots.for_each(|slot| set_pointer(root, slot, 0)))
}
