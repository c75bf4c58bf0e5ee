//! Visits every run and every table of an indirect map, and moves tables out of the part of the volume that
//! goes.

use throughline_extfmt::extent::Extent;
use throughline_extfmt::indirect::{DIRECT, IndirectGeometry, MAX_LEVELS};
use throughline_extfmt::{FileBlock, FsBlock};

use super::super::store::{Nodes, NodesMut};
use super::super::survey::Piece;
use super::{POINTER_BYTES, pointer, set_pointer};
use crate::error::{Error, Result};

/// Passes every run of blocks and every table to `visit`, a table before what is below it.
pub(crate) fn walk<S: Nodes>(
    store: &S,
    block_bytes: u32,
    visit: &mut dyn FnMut(Piece) -> Result<()>,
) -> Result<()> {
    let geometry = IndirectGeometry::new(block_bytes);
    let root = store.root();
    walk_runs(store, &root[..DIRECT as usize * POINTER_BYTES], 0, visit)?;
    for levels in 1..=MAX_LEVELS {
        let table = pointer(&root, DIRECT as usize + levels - 1);
        if table != 0 {
            let first = geometry.first_of(levels);
            walk_table(
                store,
                FsBlock(table.into()),
                (levels, first),
                geometry,
                visit,
            )?;
        }
    }
    Ok(())
}

/// `levels`: tables on the way from this one to a block. `first`: the first block of the file below it.
fn walk_table<S: Nodes>(
    store: &S,
    at: FsBlock,
    (levels, first): (usize, u64),
    geometry: IndirectGeometry,
    visit: &mut dyn FnMut(Piece) -> Result<()>,
) -> Result<()> {
    store.check_run(at, 1)?;
    visit(Piece::Node(at))?;
    let table = store.node(at)?;
    if levels == 1 {
        return walk_runs(store, &table, first, visit).map_err(|e| e.in_block(at));
    }
    let span = geometry.span(levels - 1);
    for slot in 0..table.len() / POINTER_BYTES {
        let below = pointer(&table, slot);
        if below != 0 {
            let first = first + slot as u64 * span;
            walk_table(
                store,
                FsBlock(below.into()),
                (levels - 1, first),
                geometry,
                visit,
            )?;
        }
    }
    Ok(())
}

fn walk_runs<S: Nodes>(
    store: &S,
    table: &[u8],
    first: u64,
    visit: &mut dyn FnMut(Piece) -> Result<()>,
) -> Result<()> {
    let mut run: Option<Extent> = None;
    let slots = table.len() / POINTER_BYTES;
    for slot in 0..=slots {
        // One past the end, to end the last run.
        let block = if slot < slots {
            pointer(table, slot)
        } else {
            0
        };
        let block = u64::from(block);
        if let Some(run) = run.as_mut()
            && block != 0
            && run.start.0 + u64::from(run.len) == block
        {
            run.len += 1;
            continue;
        }
        if let Some(run) = run.take() {
            store.check_run(run.start, run.len)?;
            visit(Piece::Data(run))?;
        }
        if block != 0 {
            let at = u32::try_from(first + slot as u64)
                .map_err(|_| Error::corrupt("a pointer past the last block of a file"))?;
            run = Some(Extent {
                block: FileBlock(at),
                len: 1,
                start: FsBlock(block),
                unwritten: false,
            });
        }
    }
    Ok(())
}

/// Moves tables from `limit` on to other blocks, until `moved` has `most` of their new places. The
/// map is valid after each.
///
/// # Errors
/// No space for a table: what was moved remains so.
pub(crate) fn move_tables<S: NodesMut>(
    store: &mut S,
    (limit, most): (FsBlock, u32),
    moved: &mut Vec<FsBlock>,
) -> Result<()> {
    for levels in 1..=MAX_LEVELS {
        move_below(
            store,
            None,
            DIRECT as usize + levels - 1,
            levels,
            (limit, most),
            moved,
        )?;
    }
    Ok(())
}

/// Moves the table that `slot` of its parent leads to, and what is below it.
fn move_below<S: NodesMut>(
    store: &mut S,
    parent: Option<FsBlock>,
    slot: usize,
    levels: usize,
    (limit, most): (FsBlock, u32),
    moved: &mut Vec<FsBlock>,
) -> Result<()> {
    let at = match parent {
        Some(parent) => pointer(&store.node(parent)?, slot),
        None => pointer(&store.root(), slot),
    };
    if at == 0 || moved.len() >= most as usize {
        return Ok(());
    }
    let mut at = FsBlock(at.into());
    if at >= limit {
        let content = store.node(at)?;
        let place = store.create(|bytes| bytes.copy_from_slice(&content))?;
        drop(content);
        // Below the limit, and so within 32 bits as the old one.
        let short = place.0 as u32;
        match parent {
            Some(parent) => store.edit(parent, |bytes| set_pointer(bytes, slot, short))?,
            None => store.edit_root(|root| set_pointer(root, slot, short))?,
        }
        store.free(at)?;
        moved.push(place);
        at = place;
    }
    if levels > 1 {
        let slots = store.node(at)?.len() / POINTER_BYTES;
        for slot in 0..slots {
            move_below(store, Some(at), slot, levels - 1, (limit, most), moved)?;
        }
    }
    Ok(())
}
