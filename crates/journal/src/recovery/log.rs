//! The log as the journal's superblock and the journal inode's mapping describe it.
//!
//! Invariants:
//! - What [`JournalSuperblock::validate`] promises of the geometry, and every block of the journal is mapped to a
//!   block of the file system. Whatever reads the log relies on it.

use throughline_block::{Disk, Purpose};
use throughline_extfmt::jbd2::{
    BlockHeader, BlockType, JournalCsum, JournalFormat, JournalGeometry, JournalIncompat,
    JournalSuperblock,
};
use throughline_extfmt::{Corrupt, FsBlock};

use super::{JournalRun, MAX_JOURNAL_BLOCKS};
use crate::error::{Error, Result};

/// How much of the log is read at once, in bytes.
const WINDOW_BYTES: u32 = 256 << 10;

/// Features of journals that are known.
const KNOWN: JournalIncompat = JournalIncompat::REVOKE
    .union(JournalIncompat::BIT64)
    .union(JournalIncompat::ASYNC_COMMIT)
    .union(JournalIncompat::CSUM_V2)
    .union(JournalIncompat::CSUM_V3)
    .union(JournalIncompat::FAST_COMMIT);

/// A journal whose superblock was checked.
pub(crate) struct Log<'a> {
    pub(crate) disk: &'a Disk,
    pub(crate) fs_blocks: u64,
    runs: &'a [JournalRun],
    /// The journal's own blocks: first, and the one behind the last, ascending.
    own: Vec<(u64, u64)>,
    /// What its superblock says.
    pub(crate) geometry: JournalGeometry,
    /// How its blocks are read.
    pub(crate) format: JournalFormat,
}

impl<'a> Log<'a> {
    /// Reads and checks the superblock.
    pub(crate) fn open(
        disk: &'a Disk,
        block_bytes: u32,
        fs_blocks: u64,
        runs: &'a [JournalRun],
    ) -> Result<Self> {
        let mapped = mapped_blocks(runs, fs_blocks)?;
        let Some(first) = runs.first().map(|run| run.first) else {
            return Err(Error::corrupt("the journal has no blocks"));
        };
        let mut bytes = vec![0; block_bytes as usize];
        let offset = offset_of(disk, block_bytes, first)?;
        Purpose::Journal.during(|| disk.read_at(offset, &mut bytes))?;
        let at_first = |what| Error::corrupt_block(first, what);
        let sb = JournalSuperblock::read(&bytes).map_err(at_first)?;
        check_features(&sb)?;
        let geometry = sb.validate(block_bytes, mapped.into()).map_err(at_first)?;
        Ok(Self {
            disk,
            fs_blocks,
            runs,
            own: own_blocks(runs),
            format: geometry.format,
            geometry,
        })
    }

    /// Bytes of a block.
    pub(crate) fn block_bytes(&self) -> u32 {
        self.format.block_bytes
    }

    /// Whether data blocks have to be read to verify a transaction.
    pub(crate) fn sums_data(&self) -> bool {
        self.format.csum != JournalCsum::None
    }

    /// What a log block is, if its header carries the `sequence` that is looked for.
    pub(crate) fn kind_of(&self, bytes: &[u8], sequence: u32) -> Option<BlockType> {
        let (kind, found) = BlockHeader::read(bytes)?;
        (found == sequence).then_some(kind)
    }

    /// Where block `journal_block`, below `fc_end`, lies in the file system.
    pub(crate) fn place(&self, journal_block: u32) -> FsBlock {
        let run = self
            .runs
            .partition_point(|run| run.journal_block <= journal_block)
            .saturating_sub(1);
        let run = self.runs[run];
        FsBlock(run.first.0 + u64::from(journal_block - run.journal_block))
    }

    /// Whether `block` of the file system is one of the journal.
    pub(crate) fn holds(&self, block: FsBlock) -> bool {
        let behind = self.own.partition_point(|(first, _)| *first <= block.0);
        behind > 0 && block.0 < self.own[behind - 1].1
    }

    /// The block after `journal_block`, around the end.
    pub(crate) fn next(&self, journal_block: u32) -> u32 {
        if journal_block + 1 >= self.geometry.end {
            self.geometry.first
        } else {
            journal_block + 1
        }
    }

    /// How many blocks from `journal_block` on are best read at once, `limit` at most.
    pub(crate) fn window(&self, journal_block: u32, limit: u32) -> u32 {
        let most = (WINDOW_BYTES / self.block_bytes()).max(1);
        most.min(limit)
            .min(self.geometry.end.saturating_sub(journal_block))
            .max(1)
    }

    /// Reads `count` blocks from `journal_block` on, which do not go around the end.
    pub(crate) fn read(&self, journal_block: u32, count: u32) -> Result<Vec<u8>> {
        let size = self.block_bytes() as usize;
        let mut bytes = vec![0; size * count as usize];
        let mut pieces = Vec::new();
        for (index, piece) in (journal_block..).zip(bytes.chunks_mut(size)) {
            let offset = self.offset_of(self.place(index))?;
            pieces.push((offset, piece));
        }
        Purpose::Journal.during(|| self.disk.read_batch(&mut pieces))?;
        Ok(bytes)
    }

    /// Where `block` of the file system begins on the device, which holds all of it.
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
        let what = "recovery needs it, and it lies past the end of the device";
        Error::corrupt_block(block, Corrupt::new(what))
    })
}

/// Refuses features that are not known.
fn check_features(sb: &JournalSuperblock) -> Result<()> {
    let unknown = sb.incompat().difference(KNOWN).bits();
    // A superblock of version 1 has no features, whatever is in their place.
    let has_features = sb.s_header.h_blocktype.get() == BlockType::SuperblockV2.to_disk();
    let unknown_ro = if has_features {
        sb.s_feature_ro_compat.get()
    } else {
        0
    };
    if unknown | unknown_ro == 0 {
        return Ok(());
    }
    let text = format!("journal features incompat {unknown:#x}, ro_compat {unknown_ro:#x}");
    Err(Error::Unsupported(text))
}

/// How many blocks from 0 on the runs map, without a gap, all inside the file system.
fn mapped_blocks(runs: &[JournalRun], fs_blocks: u64) -> Result<u32> {
    let mut mapped = 0_u32;
    for run in runs {
        let end = run
            .first
            .checked_add(u64::from(run.len))
            .filter(|end| end.0 <= fs_blocks);
        let next = mapped
            .checked_add(run.len)
            .filter(|next| *next <= MAX_JOURNAL_BLOCKS);
        match (end, next) {
            (Some(_), Some(next)) if run.journal_block == mapped && run.len > 0 => mapped = next,
            (_, None) => {
                return Err(Error::Unsupported(format!(
                    "a journal of over {MAX_JOURNAL_BLOCKS} blocks"
                )));
            }
            _ => {
                return Err(Error::corrupt(format!(
                    "the journal is badly mapped at its block {mapped}"
                )));
            }
        }
    }
    Ok(mapped)
}

fn own_blocks(runs: &[JournalRun]) -> Vec<(u64, u64)> {
    let ends = |run: &JournalRun| (run.first.0, run.first.0.saturating_add(run.len.into()));
    let mut own: Vec<(u64, u64)> = runs.iter().map(ends).collect();
    own.sort_unstable();
    own
}
