//! The log as the journal's superblock and the journal inode's mapping describe it.
//!
//! Invariants:
//! - `first < last <= fc_end <= maxlen`, every block below `fc_end` is mapped to a block of the file system, and
//!   `start` is 0 (nothing to recover) or in `first..last`. Whatever reads the log relies on it.

use throughline_block::Disk;
use throughline_extfmt::checksum::{CRC32C_INIT, crc32c};
use throughline_extfmt::jbd2::{
    BlockType, CHECKSUM_CRC32C, JBD2_MAGIC, JOURNAL_SUPERBLOCK_BYTES, JournalCompat,
    JournalIncompat, JournalSuperblock,
};
use throughline_extfmt::{Corrupt, FsBlock};
use zerocopy::FromBytes;

use super::{JournalRun, MAX_JOURNAL_BLOCKS};
use crate::error::{Error, Result};

/// Fast-commit blocks of a journal whose superblock does not say how many.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// How much of the log is read at once, in bytes.
const WINDOW_BYTES: u32 = 256 << 10;

/// A journal whose superblock was checked.
pub(crate) struct Log<'a> {
    pub(crate) disk: &'a Disk,
    pub(crate) block_bytes: u32,
    pub(crate) fs_blocks: u64,
    runs: &'a [JournalRun],
    /// The journal's own blocks: first, and the one behind the last, ascending.
    own: Vec<(u64, u64)>,
    pub(crate) incompat: JournalIncompat,
    /// Commit blocks carry a sum over their transaction (version 1 of the checksums).
    pub(crate) commit_sums: bool,
    /// The seed of all checksums of version 2 and 3.
    pub(crate) seed: u32,
    /// First block of the log.
    pub(crate) first: u32,
    /// The block behind its last.
    pub(crate) last: u32,
    /// The block behind the last of the fast-commit area; `last` where there is none.
    pub(crate) fc_end: u32,
    /// Where the oldest live transaction starts; 0: the log is empty.
    pub(crate) start: u32,
    /// Its sequence number.
    pub(crate) sequence: u32,
    pub(crate) recorded_errno: u32,
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
        let mut log = Log {
            disk,
            block_bytes,
            fs_blocks,
            runs,
            own: own_blocks(runs),
            incompat: JournalIncompat::empty(),
            commit_sums: false,
            seed: 0,
            first: 0,
            last: 1,
            fc_end: 1,
            start: 0,
            sequence: 0,
            recorded_errno: 0,
        };
        if mapped == 0 {
            return Err(Error::corrupt("the journal has no blocks"));
        }
        let bytes = log.read(0, 1)?;
        let (sb, _) = JournalSuperblock::read_from_prefix(&bytes)
            .map_err(|_| Error::corrupt("the journal's block is shorter than its superblock"))?;
        log.take_features(&sb, &bytes)
            .and_then(|()| log.take_geometry(&sb, mapped))
            .map(|()| log)
    }

    /// Whether blocks carry checksums of their own (version 2 or 3).
    pub(crate) fn block_sums(&self) -> bool {
        self.incompat
            .intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3)
    }

    fn take_features(&mut self, sb: &JournalSuperblock, bytes: &[u8]) -> Result<()> {
        if sb.s_header.h_magic.get() != JBD2_MAGIC {
            return Err(Error::corrupt(
                "the journal's superblock has no magic number",
            ));
        }
        match sb.s_header.h_blocktype.get() {
            kind if kind == BlockType::SuperblockV1 as u32 => return Ok(()),
            kind if kind == BlockType::SuperblockV2 as u32 => {}
            kind => {
                return Err(Error::corrupt(format!(
                    "the journal's superblock has block type {kind}"
                )));
            }
        }
        let (compat, incompat) = (sb.s_feature_compat.get(), sb.s_feature_incompat.get());
        let known = JournalIncompat::REVOKE
            | JournalIncompat::BIT64
            | JournalIncompat::ASYNC_COMMIT
            | JournalIncompat::CSUM_V2
            | JournalIncompat::CSUM_V3
            | JournalIncompat::FAST_COMMIT;
        let (unknown, unknown_ro) = (incompat & !known.bits(), sb.s_feature_ro_compat.get());
        if unknown | unknown_ro != 0 {
            let text = format!("journal features incompat {unknown:#x}, ro_compat {unknown_ro:#x}");
            return Err(Error::Unsupported(text));
        }
        self.incompat = JournalIncompat::from_bits_retain(incompat);
        self.commit_sums =
            JournalCompat::from_bits_retain(compat).contains(JournalCompat::CHECKSUM);
        if self
            .incompat
            .contains(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3)
            || (self.commit_sums && self.block_sums())
        {
            return Err(Error::corrupt(
                "the journal has checksums of two versions at once",
            ));
        }
        if self.block_sums() {
            self.check_sum(sb, bytes)?;
            self.seed = crc32c(CRC32C_INIT, &sb.s_uuid);
        }
        Ok(())
    }

    fn check_sum(&self, sb: &JournalSuperblock, bytes: &[u8]) -> Result<()> {
        if sb.s_checksum_type != CHECKSUM_CRC32C {
            let kind = sb.s_checksum_type;
            return Err(Error::corrupt(format!(
                "the journal has checksums of unknown type {kind}"
            )));
        }
        const SUM_AT: usize = std::mem::offset_of!(JournalSuperblock, s_checksum);
        let sum = [
            &bytes[..SUM_AT],
            &[0; 4],
            &bytes[SUM_AT + 4..JOURNAL_SUPERBLOCK_BYTES],
        ]
        .iter()
        .fold(CRC32C_INIT, |sum, part| crc32c(sum, part));
        if sum != sb.s_checksum.get() {
            let stored = sb.s_checksum.get();
            let text =
                format!("the journal's superblock has checksum {stored:#x}, its content {sum:#x}");
            return Err(Error::corrupt(text));
        }
        Ok(())
    }

    fn take_geometry(&mut self, sb: &JournalSuperblock, mapped: u32) -> Result<()> {
        let (block_bytes, maxlen) = (sb.s_blocksize.get(), sb.s_maxlen.get());
        if block_bytes != self.block_bytes {
            let text = format!(
                "the journal has blocks of {block_bytes} bytes, the volume {}",
                self.block_bytes
            );
            return Err(Error::corrupt(text));
        }
        if maxlen > mapped {
            let text = format!(
                "the journal has {maxlen} blocks by its superblock and {mapped} by its inode"
            );
            return Err(Error::corrupt(text));
        }
        self.first = sb.s_first.get();
        (self.last, self.fc_end) = (maxlen, maxlen);
        if self.incompat.contains(JournalIncompat::FAST_COMMIT) {
            let count = match sb.s_num_fc_blks.get() {
                0 => DEFAULT_FAST_COMMIT_BLOCKS,
                count => count,
            };
            self.last = maxlen.saturating_sub(count);
        }
        self.start = sb.s_start.get();
        self.sequence = sb.s_sequence.get();
        self.recorded_errno = sb.s_errno.get().cast_signed().unsigned_abs();
        let inside = |block: u32| block >= self.first && block < self.last;
        if self.first == 0 || !inside(self.first) || (self.start != 0 && !inside(self.start)) {
            let (first, last, start) = (self.first, self.last, self.start);
            let text = format!(
                "the journal's log goes from block {first} to {last} and starts at {start}"
            );
            return Err(Error::corrupt(text));
        }
        Ok(())
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
        if journal_block + 1 >= self.last {
            self.first
        } else {
            journal_block + 1
        }
    }

    /// How many blocks from `journal_block` on are best read at once, `limit` at most.
    pub(crate) fn window(&self, journal_block: u32, limit: u32) -> u32 {
        let most = (WINDOW_BYTES / self.block_bytes).max(1);
        most.min(limit)
            .min(self.last.saturating_sub(journal_block))
            .max(1)
    }

    /// Reads `count` blocks from `journal_block` on, which do not go around the end.
    pub(crate) fn read(&self, journal_block: u32, count: u32) -> Result<Vec<u8>> {
        let size = self.block_bytes as usize;
        let mut bytes = vec![0; size * count as usize];
        let mut pieces = Vec::new();
        for (index, piece) in (journal_block..).zip(bytes.chunks_mut(size)) {
            let offset = self.offset_of(self.place(index))?;
            pieces.push((offset, piece));
        }
        self.disk.read_batch(&mut pieces)?;
        Ok(bytes)
    }

    /// Where `block` of the file system begins on the device, which holds all of it.
    pub(crate) fn offset_of(&self, block: FsBlock) -> Result<u64> {
        let size = u64::from(self.block_bytes);
        block
            .byte_offset(self.block_bytes)
            .filter(|offset| {
                offset
                    .checked_add(size)
                    .is_some_and(|end| end <= self.disk.len_bytes())
            })
            .ok_or_else(|| {
                let what = "recovery needs it, and it lies past the end of the device";
                Error::corrupt_block(block, Corrupt::new(what))
            })
    }
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
