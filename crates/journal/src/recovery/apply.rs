//! Writes a recovered log home and empties the journal.
//!
//! ```text
//!  copies in the log ─► home, ascending ─► flush ─► journal superblock: start 0, number after next, FUA
//! ```
//!
//! Invariants:
//! - The log is not changed before all its blocks are home and flushed. So a power cut at any point leaves a
//!   journal that recovers to the same volume: from the whole log before the superblock is written, from an
//!   empty one after.
//! - The next transaction does not get the number of a torn one whose blocks may remain in the log.

use throughline_block::Purpose;
use throughline_extfmt::jbd2::{JournalSuperblock, unescape};
use zerocopy::FromBytes;

use super::log::Log;
use super::{Replay, ReplayBlock};
use crate::error::{Error, Result};

/// The most bytes of copies held in memory.
const BATCH_BYTES: usize = 4 << 20;

impl Log<'_> {
    /// Writes every block of `replay` home, ascending, and flushes.
    pub(super) fn write_home(&self, replay: &Replay) -> Result<()> {
        let size = self.block_bytes() as usize;
        for batch in replay.blocks().chunks((BATCH_BYTES / size).max(1)) {
            self.copy_home(batch)?;
        }
        Ok(self.disk.flush()?)
    }

    fn copy_home(&self, batch: &[ReplayBlock]) -> Result<()> {
        let size = self.block_bytes() as usize;
        let mut copies = vec![0; size * batch.len()];
        let mut pieces = Vec::with_capacity(batch.len());
        for (block, piece) in batch.iter().zip(copies.chunks_mut(size)) {
            pieces.push((self.offset_of(block.copy)?, piece));
        }
        Purpose::Journal.during(|| self.disk.read_batch(&mut pieces))?;
        let mut pieces = Vec::with_capacity(batch.len());
        for (block, copy) in batch.iter().zip(copies.chunks_mut(size)) {
            if block.escaped {
                unescape(copy);
            }
            pieces.push((self.offset_of(block.home)?, &*copy));
        }
        Ok(Purpose::Metadata.during(|| self.disk.write_batch(&pieces))?)
    }

    /// Empties the log; the next transaction gets the number `sequence`. Durable on return.
    pub(super) fn reset(&self, sequence: u32) -> Result<()> {
        self.update_superblock(|sb| {
            sb.s_start.set(0);
            sb.s_sequence.set(sequence);
            sb.s_errno.set(0);
        })
    }

    /// Sets the log's start to journal block `start` and its first transaction to `sequence`, which is not
    /// written yet. Such a log is empty, and fast commits for `sequence` still count. Durable on return.
    pub(super) fn start_at(&self, start: u32, sequence: u32) -> Result<()> {
        self.update_superblock(|sb| {
            sb.s_start.set(start);
            sb.s_sequence.set(sequence);
        })
    }

    /// Changes the journal's superblock durably. The fields that change are in its first sector, so a power
    /// cut does not tear it.
    fn update_superblock(&self, change: impl FnOnce(&mut JournalSuperblock)) -> Result<()> {
        let mut bytes = self.read(0, 1)?;
        let (sb, _) = JournalSuperblock::mut_from_prefix(&mut bytes)
            .map_err(|_| Error::corrupt("the journal's blocks are shorter than its superblock"))?;
        change(sb);
        sb.update_checksum();
        let offset = self.offset_of(self.place(0)?)?;
        Ok(Purpose::Journal.during(|| self.disk.write_at(offset, &bytes, true))?)
    }
}
