//! The mapping of journal blocks to file system blocks, for recovery and for writing.
//!
//! Invariant: the runs map every block of the journal, from 0 and without a gap, to blocks inside the file
//! system, or, if the journal is on another device that is joined with the file system's, to blocks behind
//! it.

use throughline_extfmt::{Corrupt, FsBlock};

use crate::error::{Error, Result};
use crate::recovery::{JournalRun, MAX_JOURNAL_BLOCKS};

/// The journal inode's blocks.
pub(crate) struct LogMap {
    runs: Vec<JournalRun>,
    blocks: u32,
    block_bytes: u32,
}

impl LogMap {
    /// Checks that `runs` have no gap and lie inside a file system of `fs_blocks` blocks, or behind it.
    pub(crate) fn new(runs: &[JournalRun], fs_blocks: u64, block_bytes: u32) -> Result<Self> {
        let mut blocks = 0_u32;
        for run in runs {
            let end = run.first.checked_add(u64::from(run.len));
            let is_behind = run.first.0 >= fs_blocks;
            let is_possible = end.is_some_and(|end| end.0 <= fs_blocks || is_behind);
            if !is_possible || run.journal_block != blocks || run.len == 0 {
                return Err(Error::corrupt(format!(
                    "the journal's mapping is damaged at journal block {blocks}"
                )));
            }
            let next = blocks
                .checked_add(run.len)
                .filter(|next| *next <= MAX_JOURNAL_BLOCKS);
            blocks = next.ok_or_else(|| {
                Error::Unsupported(format!(
                    "a journal of more than {MAX_JOURNAL_BLOCKS} blocks"
                ))
            })?;
        }
        Ok(Self {
            runs: runs.to_vec(),
            blocks,
            block_bytes,
        })
    }

    /// The length of the journal, in blocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Where a block of the journal lies in the file system.
    pub(crate) fn place(&self, journal_block: u32) -> Result<FsBlock> {
        let run = self
            .runs
            .partition_point(|run| run.journal_block <= journal_block)
            .checked_sub(1)
            .and_then(|at| self.runs.get(at))
            .filter(|_| journal_block < self.blocks);
        let run =
            run.ok_or_else(|| Error::corrupt(format!("the journal has no block {journal_block}")))?;
        Ok(FsBlock(
            run.first.0 + u64::from(journal_block - run.journal_block),
        ))
    }

    /// The byte offset on the device at which a block of the journal starts.
    pub(crate) fn offset(&self, journal_block: u32) -> Result<u64> {
        let place = self.place(journal_block)?;
        place.byte_offset(self.block_bytes).ok_or_else(|| {
            Error::corrupt_block(
                place,
                Corrupt::new("the byte offset of this journal block overflows"),
            )
        })
    }
}
