//! The blocks of pointers of a file that is not mapped by extents.

use std::ops::Range;

use throughline_extfmt::FileBlock;
use throughline_extfmt::indirect::{IndirectGeometry, POINTER_BYTES, set_pointer};
use throughline_extfmt::inode::I_BLOCK_BYTES;

/// Calls `visit` with the path to the pointer of every block, and the number of blocks of pointers that the
/// path shares with the one before.
fn walk(runs: &[Range<u32>], block_bytes: u32, mut visit: impl FnMut(u32, &[u32], usize)) {
    let map = IndirectGeometry::new(block_bytes);
    let mut before: Vec<u32> = Vec::new();
    for block in runs.iter().flat_map(|run| run.clone()) {
        let Some(path) = map.path(FileBlock(block)) else {
            return;
        };
        let indexes = path.indexes();
        let tables = indexes.len() - 1;
        let shared = (0..tables)
            .take_while(|depth| {
                before.len() == indexes.len() && before[..=*depth] == indexes[..=*depth]
            })
            .count();
        visit(block, indexes, shared);
        before.clear();
        before.extend_from_slice(indexes);
    }
}

/// The number of blocks of pointers for these blocks of a file.
pub(crate) fn count(runs: &[Range<u32>], block_bytes: u32) -> u64 {
    let map = IndirectGeometry::new(block_bytes);
    match runs {
        [] => 0,
        // The usual file, without holes.
        [run] if run.start == 0 => map.pointer_blocks(u64::from(run.end)),
        _ => {
            let mut count = 0;
            walk(runs, block_bytes, |_, indexes, shared| {
                count += (indexes.len() - 1 - shared) as u64;
            });
            count
        }
    }
}

/// A finished map.
pub(crate) struct Map {
    pub(crate) root: [u8; I_BLOCK_BYTES],
    /// The blocks of pointers, and where they are.
    pub(crate) tables: Vec<(u64, Vec<u8>)>,
}

/// Writes the pointers to `places`, the blocks of the file in their order, into blocks at `own`.
pub(crate) fn write(
    runs: &[Range<u32>],
    block_bytes: u32,
    places: impl Iterator<Item = u64>,
    own: impl Iterator<Item = u64>,
) -> Map {
    let mut map = Map {
        root: [0; I_BLOCK_BYTES],
        tables: Vec::new(),
    };
    let (mut places, mut own) = (places, own);
    // The tables on the way to the last block, by their depth.
    let mut path: Vec<usize> = Vec::new();
    walk(runs, block_bytes, |_, indexes, shared| {
        path.truncate(shared);
        for depth in shared..indexes.len() {
            let is_table = depth + 1 < indexes.len();
            let place = match is_table {
                true => own.next(),
                false => places.next(),
            };
            let pointer = place.unwrap_or(0) as u32;
            match depth {
                0 => {
                    let at = (indexes[0] * POINTER_BYTES) as usize;
                    map.root[at..at + 4].copy_from_slice(&pointer.to_le_bytes());
                }
                _ => set_pointer(&mut map.tables[path[depth - 1]].1, indexes[depth], pointer),
            }
            if is_table {
                path.push(map.tables.len());
                map.tables
                    .push((u64::from(pointer), vec![0; block_bytes as usize]));
            }
        }
    });
    map
}
