//! Indirect block maps: the path of pointers to a logical block.
//!
//! `i_block` holds 12 direct pointers, then one single, one double and one triple indirect
//! pointer. A pointer has 32 bits; 0 is a hole.

use crate::units::FileBlock;

/// Pointers in the inode that lead to data.
pub const DIRECT: u32 = 12;
/// Pointers in the inode.
pub const POINTERS: u32 = 15;
/// Bytes of a pointer.
pub const POINTER_BYTES: u32 = 4;
/// The maximum levels of pointer blocks.
pub const MAX_LEVELS: usize = 3;

/// Geometry of the maps of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndirectGeometry {
    /// Base-2 logarithm of the pointers in a block: 8 to 14.
    per_block_log: u32,
}

/// The path to a logical block: an index into `i_block`, then one into each pointer block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    indexes: [u32; MAX_LEVELS + 1],
    levels: usize,
}

impl Path {
    /// Levels of pointer blocks on the path: 0 (direct) to 3.
    pub fn levels(&self) -> usize {
        self.levels
    }

    /// The indexes, the one into `i_block` first: `levels` + 1 of them.
    pub fn indexes(&self) -> &[u32] {
        self.indexes.get(..=self.levels).unwrap_or_default()
    }
}

impl IndirectGeometry {
    /// Geometry for blocks of this size (1024 to 65536).
    pub fn new(block_bytes: u32) -> Self {
        let log = (block_bytes / POINTER_BYTES)
            .checked_ilog2()
            .unwrap_or_default();
        Self {
            per_block_log: log.clamp(8, 14),
        }
    }

    /// Pointers in a block.
    pub fn per_block(&self) -> u32 {
        1 << self.per_block_log
    }

    /// Logical blocks below one pointer that has `levels` (0..=3) pointer blocks under it.
    pub fn span(&self, levels: usize) -> u64 {
        1u64 << self
            .per_block_log
            .saturating_mul(levels.min(MAX_LEVELS) as u32)
    }

    /// First logical block that is reached through `levels` (0..=3) pointer blocks; for 4, the
    /// end of what the map can hold.
    pub fn first_of(&self, levels: usize) -> u64 {
        (1..levels.min(MAX_LEVELS.saturating_add(1)))
            .map(|below| self.span(below))
            .fold(
                if levels == 0 { 0 } else { u64::from(DIRECT) },
                u64::saturating_add,
            )
    }

    /// The number of logical blocks a map can hold: at most 2^32 - 1, the format's limit for any file.
    pub fn max_blocks(&self) -> u64 {
        self.first_of(MAX_LEVELS.saturating_add(1))
            .min(u64::from(u32::MAX))
    }

    /// The path to a logical block; `None` if the map cannot hold it.
    pub fn path(&self, block: FileBlock) -> Option<Path> {
        let number = u64::from(block.0);
        let mut indexes = [0; MAX_LEVELS + 1];
        if block.0 < DIRECT {
            indexes[0] = block.0;
            return Some(Path { indexes, levels: 0 });
        }
        let levels = (1..=MAX_LEVELS)
            .rev()
            .find(|&levels| number >= self.first_of(levels))?;
        let within = number.checked_sub(self.first_of(levels))?;
        if within >= self.span(levels) {
            return None;
        }
        indexes[0] = DIRECT.saturating_add(levels as u32).saturating_sub(1);
        for (depth, index) in indexes
            .iter_mut()
            .enumerate()
            .take(levels.saturating_add(1))
            .skip(1)
        {
            let below = self.span(levels.saturating_sub(depth));
            let at = within.checked_div(below)?;
            *index = (at & u64::from(self.per_block().wrapping_sub(1))) as u32;
        }
        Some(Path { indexes, levels })
    }

    /// Logical block that a path's indexes lead to.
    pub fn block_at(&self, path: &Path) -> FileBlock {
        let inner = path.indexes().iter().skip(1);
        let within = inner.fold(0u64, |sum, &index| {
            (sum << self.per_block_log).saturating_add(u64::from(index))
        });
        let first = match path.levels {
            0 => u64::from(path.indexes[0]),
            levels => self.first_of(levels),
        };
        FileBlock(first.saturating_add(within) as u32)
    }

    /// Largest size of a file in bytes: limited by the map, and by `i_blocks`, which also counts
    /// pointer blocks (units of 512 bytes, 32 bits; with `huge_file` 48 bits of blocks, which is
    /// no limit here).
    pub fn max_file_bytes(&self, block_bytes: u32, huge_file: bool) -> u64 {
        let mut blocks = self.max_blocks();
        if !huge_file {
            let sectors_log = block_bytes
                .checked_ilog2()
                .unwrap_or_default()
                .saturating_sub(9);
            let countable = u64::from(u32::MAX) >> sectors_log;
            blocks = blocks.min(countable.saturating_sub(self.pointer_blocks(countable)));
        }
        blocks.saturating_mul(u64::from(block_bytes))
    }

    /// The maximum number of pointer blocks of a file with `blocks` blocks and no holes.
    pub fn pointer_blocks(&self, blocks: u64) -> u64 {
        let mut needed = 0u64;
        for levels in 1..=MAX_LEVELS {
            let below = blocks
                .saturating_sub(self.first_of(levels))
                .min(self.span(levels));
            for depth in 1..=levels {
                needed = needed.saturating_add(below.div_ceil(self.span(depth)));
            }
        }
        needed
    }
}

/// Pointer `index` of a block of pointers; 0 (a hole) past its end.
pub fn pointer(block: &[u8], index: u32) -> u32 {
    let pointers = block.as_chunks::<4>().0;
    pointers
        .get(index as usize)
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Sets pointer `index` of a block of pointers.
pub fn set_pointer(block: &mut [u8], index: u32, value: u32) {
    if let Some(bytes) = block.as_chunks_mut::<4>().0.get_mut(index as usize) {
        *bytes = value.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_at_the_edges() {
        let map = IndirectGeometry::new(1024); // 256 pointers a block
        let path = |block| {
            map.path(FileBlock(block))
                .map(|path| path.indexes().to_vec())
        };
        assert_eq!(path(0), Some(vec![0]));
        assert_eq!(path(11), Some(vec![11]));
        assert_eq!(path(12), Some(vec![12, 0]));
        assert_eq!(path(12 + 255), Some(vec![12, 255]));
        assert_eq!(path(12 + 256), Some(vec![13, 0, 0]));
        assert_eq!(path(12 + 256 + 65535), Some(vec![13, 255, 255]));
        assert_eq!(path(12 + 256 + 65536), Some(vec![14, 0, 0, 0]));
        let end = 12 + 256 + 65536 + (1 << 24);
        assert_eq!(path(end - 1), Some(vec![14, 255, 255, 255]));
        assert_eq!(path(end), None);
        assert_eq!(map.max_blocks(), u64::from(end));
        assert_eq!(path(u32::MAX), None);
    }

    #[test]
    fn paths_lead_back() {
        for block_bytes in [1024, 2048, 4096, 8192, 65536] {
            let map = IndirectGeometry::new(block_bytes);
            let mut block = 0u64;
            while block < map.max_blocks() {
                let path = map.path(FileBlock(block as u32)).unwrap();
                assert_eq!(u64::from(map.block_at(&path).0), block, "{block_bytes}");
                block = block * 3 / 2 + 1;
            }
        }
    }

    #[test]
    fn pointer_blocks_of_full_files() {
        let map = IndirectGeometry::new(1024);
        assert_eq!(map.pointer_blocks(12), 0);
        assert_eq!(map.pointer_blocks(13), 1);
        assert_eq!(map.pointer_blocks(12 + 256), 1);
        assert_eq!(map.pointer_blocks(12 + 256 + 1), 3);
        assert_eq!(map.pointer_blocks(12 + 256 + 65536), 1 + 257);
        assert_eq!(map.pointer_blocks(12 + 256 + 65536 + 1), 1 + 257 + 3);
        // 1 KiB blocks reach slightly over 16 GiB; 4 KiB without huge_file stay below 2 TiB.
        assert_eq!(
            map.max_file_bytes(1024, true),
            (12 + 256 + 65536 + (1 << 24)) * 1024
        );
        let limit = IndirectGeometry::new(4096).max_file_bytes(4096, false);
        assert!(limit < 1 << 41 && limit > (1 << 41) - (1 << 32), "{limit}");
    }
}
