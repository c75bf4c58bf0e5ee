//! The log, as described by the journal's superblock and the journal inode's mapping.
//!
//! Invariant: the geometry has passed [`JournalSuperblock::validate`], and every block of the journal is
//! mapped to a block of the file system. All readers of the log rely on it.

use throughline_block::{Disk, Purpose};
use throughline_extfmt::jbd2::{
    BlockHeader, BlockType, JournalCsum, JournalFormat, JournalGeometry, JournalSuperblock,
};
use throughline_extfmt::{Corrupt, FsBlock};

use super::JournalRun;
use crate::error::{Error, Result};
use crate::features;
use crate::map::LogMap;

/// The most bytes of the log read at once.
const WINDOW_BYTES: u32 = 256 << 10;

/// A journal with a checked superblock.
pub(crate) struct Log<'a> {
    pub(crate) disk: &'a Disk,
    pub(crate) fs_blocks: u64,
    map: LogMap,
    /// The runs of the journal's own blocks, ascending: the first block and the one after the last.
    own: Vec<(u64, u64)>,
    /// The geometry from the superblock.
    pub(crate) geometry: JournalGeometry,
    /// The format of its blocks.
    pub(crate) format: JournalFormat,
}

impl<'a> Log<'a> {
    /// Reads and checks the superblock.
    pub(crate) fn open(
        disk: &'a Disk,
        block_bytes: u32,
        fs_blocks: u64,
        runs: &[JournalRun],
    ) -> Result<Self> {
        let map = LogMap::new(runs, fs_blocks, block_bytes)?;
        let first = map.place(0)?;
        let mut bytes = vec![0; block_bytes as usize];
        let offset = offset_of(disk, block_bytes, first)?;
        Purpose::Journal.during(|| disk.read_at(offset, &mut bytes))?;
        let at_first = |what| Error::corrupt_block(first, what);
        let sb = JournalSuperblock::read(&bytes).map_err(at_first)?;
        features::check(&sb)?;
        let geometry = sb
            .validate(block_bytes, map.blocks().into())
            .map_err(at_first)?;
        Ok(Self {
            disk,
            fs_blocks,
            map,
            own: own_blocks(runs),
            format: geometry.format,
            geometry,
        })
    }

    /// The size of a block, in bytes.
    pub(crate) fn block_bytes(&self) -> u32 {
        self.format.block_bytes
    }

    /// Whether data blocks must be read to verify a transaction.
    pub(crate) fn sums_data(&self) -> bool {
        self.format.csum != JournalCsum::None
    }

    /// The type of a log block, if its header carries `sequence`.
    pub(crate) fn kind_of(&self, bytes: &[u8], sequence: u32) -> Option<BlockType> {
        let (kind, found) = BlockHeader::read(bytes)?;
        (found == sequence).then_some(kind)
    }

    /// The file system block that holds block `journal_block` of the journal.
    pub(crate) fn place(&self, journal_block: u32) -> Result<FsBlock> {
        self.map.place(journal_block)
    }

    /// Whether `block` of the file system belongs to the journal.
    pub(crate) fn holds(&self, block: FsBlock) -> bool {
        let behind = self.own.partition_point(|(first, _)| *first <= block.0);
        behind > 0 && block.0 < self.own[behind - 1].1
    }

    /// The block after `journal_block`, wrapping around.
    pub(crate) fn next(&self, journal_block: u32) -> u32 {
        if journal_block + 1 >= self.geometry.end {
            self.geometry.first
        } else {
            journal_block + 1
        }
    }

    /// The number of blocks to read at once from `journal_block` on, at most `limit`.
    pub(crate) fn window(&self, journal_block: u32, limit: u32) -> u32 {
        let most = (WINDOW_BYTES / self.block_bytes()).max(1);
        most.min(limit)
            .min(self.geometry.end.saturating_sub(journal_block))
            .max(1)
    }

    /// Reads `count` blocks from `journal_block` on. The range must not wrap around.
    pub(crate) fn read(&self, journal_block: u32, count: u32) -> Result<Vec<u8>> {
        let size = self.block_bytes() as usize;
        let mut bytes = vec![0; size * count as usize];
        let mut pieces = Vec::new();
        for (index, piece) in (journal_block..).zip(bytes.chunks_mut(size)) {
            let offset = self.offset_of(self.place(index)?)?;
            pieces.push((offset, piece));
        }
        Purpose::Journal.during(|| self.disk.read_batch(&mut pieces))?;
        Ok(bytes)
    }

    /// The byte offset of `block` of the file system, if all of it lies on the device.
    pub(crate) fn offset_of(&self, block: FsBlock) -> Result<u64> {
        offset_of(self.disk, self.block_bytes(), block)
    }
}

fn offset_of(disk: &Disk, block_bytes: u32, block: FsBlock) -> Result<u64> {
    let fits = |offset: &u64| {
        let end = offset.checked_add(block_bytes.into());
        end.is_some_and(|end| end <= disk.len_bytes())
    };
    block.byte_offset(block_bytes).filter(fits).ok_or_else(|| {
        let what = "needed for recovery, but past the end of the device";
        Error::corrupt_block(block, Corrupt::new(what))
    })
}

fn own_blocks(runs: &[JournalRun]) -> Vec<(u64, u64)> {
    let ends = |run: &JournalRun| (run.first.0, run.first.0.saturating_add(run.len.into()));
    let mut own: Vec<(u64, u64)> = runs.iter().map(ends).collect();
    own.sort_unstable();
    own
}
