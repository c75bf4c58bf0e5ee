//! Recovery written home, after which the journal is empty.
//!
//! ```text
//!  copies in the log ─► home, ascending ─► flush ─► journal superblock: start 0, number after next, FUA
//! ```
//!
//! Invariants:
//! - The log is not touched before everything it holds is home and flushed. So a cut at any point leaves a journal that
//!   recovers to the same volume: before the superblock is written the whole log again, afterwards nothing.
//! - The next transaction has a number that the torn one, whose blocks may be left in the log, did not have.

use throughline_block::Purpose;
use throughline_extfmt::jbd2::{JournalSuperblock, unescape};
use zerocopy::FromBytes;

use super::log::Log;
use super::{Replay, ReplayBlock};
use crate::error::{Error, Result};

/// Copies in memory at once, in bytes.
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

    /// Empties the log: the next transaction has the number `sequence`. Durable when it returns.
    pub(super) fn reset(&self, sequence: u32) -> Result<()> {
        self.update_superblock(|sb| {
            sb.s_start.set(0);
            sb.s_sequence.set(sequence);
            sb.s_errno.set(0);
        })
    }

    /// Lets the log start at block `start` of the journal with the transaction `sequence`, which is not there yet: it holds
    /// nothing, and fast commits on top of that transaction still count. Durable when it returns.
    pub(super) fn start_at(&self, start: u32, sequence: u32) -> Result<()> {
        self.update_superblock(|sb| {
            sb.s_start.set(start);
            sb.s_sequence.set(sequence);
        })
    }

    /// Changes the journal's superblock, durably. What matters of it is in its first sector, so no cut tears it.
    fn update_superblock(&self, change: impl FnOnce(&mut JournalSuperblock)) -> Result<()> {
        let mut bytes = self.read(0, 1)?;
        let (sb, _) = JournalSuperblock::mut_from_prefix(&mut bytes)
            .map_err(|_| Error::corrupt("the journal's block is shorter than its superblock"))?;
        change(sb);
        sb.update_checksum();
        let offset = self.offset_of(self.place(0)?)?;
        Ok(Purpose::Journal.during(|| self.disk.write_at(offset, &bytes, true))?)
    }
}
