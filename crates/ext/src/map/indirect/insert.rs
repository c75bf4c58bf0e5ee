//! Maps blocks in an indirect map: first all tables, then the pointers, so that nothing is mapped if space
//! runs out.

use throughline_extfmt::FsBlock;
use throughline_extfmt::extent::Extent;

use super::super::kind::{Kind, TableName};
use super::super::store::{Nodes, NodesMut};
use super::{Route, lookup, pointer, set_pointer};
use crate::error::{Error, Reason, Result};

/// Maps the holes `start..start + len` to the run of blocks at `block`.
///
/// # Errors
/// `Corrupt` if something is mapped there already (the caller has checked); `TooLarge` past the mappable
/// range; no space for a table: then nothing is mapped, though empty tables may remain.
pub(crate) fn insert<S: NodesMut>(
    store: &mut S,
    start: u32,
    len: u32,
    block: u64,
    block_bytes: u32,
) -> Result<()> {
    store.check_run(FsBlock(block), len)?;
    let first = u32::try_from(block)
        .ok()
        .filter(|b| b.checked_add(len).is_some())
        .ok_or(Reason::NoSpace)?;
    for (route, _, count) in pieces(start, len, block_bytes)? {
        let table = make_tables(store, &route)?;
        let slot = route.slots[route.levels];
        let free = |bytes: &[u8]| (slot..slot + count).all(|s| pointer(bytes, s) == 0);
        let is_free = match table {
            Some(at) => free(&store.node(at)?),
            None => free(&store.root()),
        };
        if !is_free {
            return Err(Error::corrupt(format!(
                "blocks {start}..{} are mapped already",
                u64::from(start) + u64::from(len)
            )));
        }
    }
    for (route, skipped, count) in pieces(start, len, block_bytes)? {
        let table = make_tables(store, &route)?;
        let slot = route.slots[route.levels];
        let set = |bytes: &mut [u8]| {
            for (slot, value) in (slot..slot + count).zip(first + skipped..) {
                set_pointer(bytes, slot, value);
            }
        };
        match table {
            Some(at) => store.edit(at, set)?,
            None => store.edit_root(|root| set(root))?,
        }
    }
    Ok(())
}

/// Replaces `old`, a single block, by another block.
///
/// # Errors
/// `Corrupt` if something else is mapped there (the caller has checked); no space if a pointer cannot address
/// the new block: nothing has changed then.
pub(crate) fn replace_block<S: NodesMut>(
    store: &mut S,
    old: &Extent,
    with: FsBlock,
    block_bytes: u32,
) -> Result<()> {
    let block = old.block.0;
    store.check_run(with, 1)?;
    let pointer = u32::try_from(with.0).map_err(|_| Reason::NoSpace)?;
    let route = Route::new(block, block_bytes).ok_or(Reason::TooLarge)?;
    let there = lookup(store, block, 1, block_bytes)?.kind;
    if old.len != 1 || there != Kind::Data(old.start) {
        return Err(Error::corrupt(format!("other data at block {block}")));
    }
    // All tables on the path exist.
    let table = make_tables(store, &route)?;
    let slot = route.slots[route.levels];
    match table {
        Some(at) => store.edit(at, |bytes| set_pointer(bytes, slot, pointer))?,
        None => store.edit_root(|root| set_pointer(root, slot, pointer))?,
    }
    Ok(())
}

/// Number of tables that mapping `start..start + len` would allocate.
pub(crate) fn missing_tables<S: Nodes>(
    store: &S,
    start: u32,
    len: u32,
    block_bytes: u32,
) -> Result<u32> {
    let mut missing = 0;
    each_missing_table(store, start, len, block_bytes, |_| missing += 1)?;
    Ok(missing)
}

/// Calls `found` for each table that mapping `start..start + len` would allocate.
pub(crate) fn each_missing_table<S: Nodes>(
    store: &S,
    start: u32,
    len: u32,
    block_bytes: u32,
    mut found: impl FnMut(TableName),
) -> Result<()> {
    let mut before: Option<Route> = None;
    for (route, _, _) in pieces(start, len, block_bytes)? {
        // The previous piece has counted those on its own path.
        let counted =
            |level: usize| before.is_some_and(|b| b.slots[..level] == route.slots[..level]);
        let mut next = pointer(&store.root(), route.slots[0]);
        for level in 1..=route.levels {
            if next == 0 {
                (level..=route.levels)
                    .filter(|level| !counted(*level))
                    .for_each(|level| found(TableName::new(&route.slots[..level])));
                break;
            }
            if level < route.levels {
                store.check_run(FsBlock(next.into()), 1)?;
                next = pointer(&store.node(FsBlock(next.into()))?, route.slots[level]);
            }
        }
        before = Some(route);
    }
    Ok(())
}

/// Calls `found` for all tables on the paths to `start..start + len`, for some more than once.
pub(crate) fn each_table(
    start: u32,
    len: u32,
    block_bytes: u32,
    mut found: impl FnMut(TableName),
) -> Result<()> {
    for (route, _, _) in pieces(start, len, block_bytes)? {
        (1..=route.levels).for_each(|level| found(TableName::new(&route.slots[..level])));
    }
    Ok(())
}

/// Divides the range by tables: the route to the first block, blocks of the range before it, blocks in this
/// table.
fn pieces(
    start: u32,
    len: u32,
    block_bytes: u32,
) -> Result<impl Iterator<Item = (Route, u32, usize)>> {
    let last = start
        .checked_add(len)
        .and_then(|end| end.checked_sub(1))
        .ok_or(Reason::TooLarge)?;
    Route::new(last, block_bytes).ok_or(Reason::TooLarge)?;
    let mut done = 0;
    Ok(std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let route = Route::new(start + done, block_bytes)?;
        let count = (route.last_slots() - route.slots[route.levels]).min((len - done) as usize);
        let skipped = done;
        done += count as u32;
        Some((route, skipped, count))
    }))
}

/// The last table on the route, creating missing tables; `None` for the inode.
fn make_tables<S: NodesMut>(store: &mut S, route: &Route) -> Result<Option<FsBlock>> {
    let mut table: Option<FsBlock> = None;
    for slot in &route.slots[..route.levels] {
        let mut next = match table {
            Some(at) => pointer(&store.node(at)?, *slot),
            None => pointer(&store.root(), *slot),
        };
        if next == 0 {
            let made = store.create(|_| {})?;
            let Ok(short) = u32::try_from(made.0) else {
                store.free(made)?;
                return Err(Reason::NoSpace.into());
            };
            match table {
                Some(at) => store.edit(at, |bytes| set_pointer(bytes, *slot, short))?,
                None => store.edit_root(|root| set_pointer(root, *slot, short))?,
            }
            next = short;
        }
        store.check_run(FsBlock(next.into()), 1)?;
        table = Some(FsBlock(next.into()));
    }
    Ok(table)
}
