//! Indirect maps: twelve direct pointers in the inode, then one single, one double and one triple indirect
//! pointer.
//!
//! ```text
//!   i_block:  [ 0 … 11 │ 12 │ 13 │ 14 ]
//!      direct ──┘         │    │    └► table ► table ► table ► data      (per³ blocks)
//!                         │    └─────► table ► table ► data              (per²)
//!                         └──────────► table ► data                      (per = block bytes / 4)
//! ```
//!
//! A pointer of 0 is a hole of any size. Invariants: tables left without pointers by a change are freed;
//! pointers have 32 bits, so blocks past 2^32 cannot be mapped; a descent ends after three tables whatever is
//! on disk.

mod insert;
mod relocate;
mod remove;
#[cfg(test)]
mod tests;

use throughline_extfmt::indirect::{DIRECT, IndirectGeometry, MAX_LEVELS};
use throughline_extfmt::{FileBlock, FsBlock};

use super::store::Nodes;
use super::{Kind, Mapping};
use crate::error::Result;

pub(crate) use insert::{each_missing_table, each_table, insert, missing_tables, replace_block};
pub(crate) use relocate::{move_tables, walk};
pub(crate) use remove::remove;

const POINTER_BYTES: usize = throughline_extfmt::indirect::POINTER_BYTES as usize;

/// The path to a block: the slot in the inode, then the slots in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    /// Number of tables on the path, 0 to 3.
    levels: usize,
    /// Slot in the inode, then in each table.
    slots: [usize; MAX_LEVELS + 1],
    /// The block's index, relative to the first block with as many levels.
    within: u64,
    geometry: IndirectGeometry,
}

impl Route {
    /// The path to `block`; `None` past the last mappable block.
    fn new(block: u32, block_bytes: u32) -> Option<Self> {
        let geometry = IndirectGeometry::new(block_bytes);
        let path = geometry.path(FileBlock(block))?;
        let levels = path.levels();
        let mut slots = [0; MAX_LEVELS + 1];
        for (slot, index) in slots.iter_mut().zip(path.indexes()) {
            *slot = *index as usize;
        }
        let within = u64::from(block).saturating_sub(geometry.first_of(levels));
        Some(Self {
            levels,
            slots,
            within,
            geometry,
        })
    }

    /// The block's offset within the range of its slot at that level, and the length of that range in blocks.
    fn place(&self, level: usize) -> (u64, u64) {
        let span = self.geometry.span(self.levels - level);
        (self.within % span, span)
    }

    /// Number of slots in the last table, or of direct slots in the inode.
    fn last_slots(&self) -> usize {
        if self.levels == 0 {
            DIRECT as usize
        } else {
            self.geometry.per_block() as usize
        }
    }
}

/// A pointer in `i_block` or in a table.
fn pointer(table: &[u8], slot: usize) -> u32 {
    let at = slot * POINTER_BYTES;
    u32::from_le_bytes([table[at], table[at + 1], table[at + 2], table[at + 3]])
}

fn set_pointer(table: &mut [u8], slot: usize, value: u32) {
    table[slot * POINTER_BYTES..][..POINTER_BYTES].copy_from_slice(&value.to_le_bytes());
}

/// The tables of a map with at most two levels; `None` if there are more than `most`, or more levels.
///
/// # Errors
/// Errors of reading a table; `Corrupt` for pointers outside the volume.
pub(crate) fn tables<S: Nodes>(store: &S, most: usize) -> Result<Option<Vec<FsBlock>>> {
    let root = store.root();
    let [single, double, triple] =
        [0, 1, 2].map(|level| FsBlock(pointer(&root, DIRECT as usize + level).into()));
    if triple.0 != 0 {
        return Ok(None);
    }
    let mut tables: Vec<FsBlock> = [single, double].into_iter().filter(|b| b.0 != 0).collect();
    if double.0 != 0 {
        store.check_run(double, 1)?;
        let table = store.node(double)?;
        let pointers = (0..table.len() / POINTER_BYTES).map(|slot| pointer(&table, slot));
        for table in pointers.filter(|table| *table != 0) {
            if tables.len() == most {
                return Ok(None);
            }
            tables.push(FsBlock(table.into()));
        }
    }
    Ok(Some(tables))
}

/// Looks up `block`: a run of at most `max` blocks (at least 1), limited to one table.
pub(crate) fn lookup<S: Nodes>(
    store: &S,
    block: u32,
    max: u32,
    block_bytes: u32,
) -> Result<Mapping> {
    let hole = |len: u64| Mapping {
        kind: Kind::Hole,
        len_blocks: len.clamp(1, max.into()) as u32,
    };
    let Some(route) = Route::new(block, block_bytes) else {
        return Ok(hole(max.into()));
    };
    let root = store.root();
    if route.levels == 0 {
        return run(
            store,
            &root[..DIRECT as usize * POINTER_BYTES],
            route.slots[0],
            max,
        );
    }
    let mut next = pointer(&root, route.slots[0]);
    for level in 1..=route.levels {
        if next == 0 {
            let (into, span) = route.place(level - 1);
            return Ok(hole(span - into));
        }
        store.check_run(FsBlock(next.into()), 1)?;
        let table = store.node(FsBlock(next.into()))?;
        if level == route.levels {
            return run(store, &table, route.slots[level], max)
                .map_err(|e| e.in_block(FsBlock(next.into())));
        }
        next = pointer(&table, route.slots[level]);
    }
    Ok(hole(1))
}

/// The preferred volume block for `block`: right after its predecessor. `None` if that is a hole.
pub(crate) fn goal<S: Nodes>(store: &S, block: u32, block_bytes: u32) -> Result<Option<FsBlock>> {
    let Some(before) = block.checked_sub(1) else {
        return Ok(None);
    };
    Ok(match lookup(store, before, 1, block_bytes)?.kind {
        Kind::Data(b) | Kind::Unwritten(b) => b.checked_add(1),
        Kind::Hole => None,
    })
}

/// The run of pointers that begins at `slot`: all zero, or to consecutive blocks.
fn run<S: Nodes>(store: &S, table: &[u8], slot: usize, max: u32) -> Result<Mapping> {
    let first = pointer(table, slot);
    let slots = table[slot * POINTER_BYTES..]
        .chunks_exact(POINTER_BYTES)
        .take(max as usize);
    let pointers = slots.map(|raw| u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]));
    if first == 0 {
        let len = pointers.take_while(|p| *p == 0).count() as u32;
        return Ok(Mapping {
            kind: Kind::Hole,
            len_blocks: len,
        });
    }
    let len = pointers
        .zip(first..=u32::MAX)
        .take_while(|(p, expected)| p == expected)
        .count() as u32;
    store.check_run(FsBlock(first.into()), len)?;
    Ok(Mapping {
        kind: Kind::Data(FsBlock(first.into())),
        len_blocks: len,
    })
}
