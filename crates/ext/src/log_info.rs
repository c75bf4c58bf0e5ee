//! Information about a volume's journal.

pub use throughline_journal::Counts as JournalCounts;

use throughline_block::Purpose;
use throughline_extfmt::jbd2::{JournalCompat, JournalIncompat, JournalSuperblock};

use crate::base::Access;
use crate::error::{Error, Result};
use crate::inode::Inodes;
use crate::replay;

/// An internal journal: its superblock's fields and, while open for writing, its current state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogInfo {
    /// Size in bytes.
    pub bytes: u64,
    /// Feature names, as printed by `dumpe2fs`.
    pub features: Vec<String>,
    /// While the volume is open for writing, the number of the newest durable transaction. Otherwise that of
    /// the oldest transaction in the journal, or of the next one if it is empty.
    pub tid: u32,
    /// Bytes that hold transactions; `None` if the volume is not open for writing.
    pub used_bytes: Option<u64>,
    /// Whether the journal's superblock says that it holds no transactions.
    pub empty: bool,
    /// The error recorded by a writer, as a positive errno; 0 for none.
    pub errno: u32,
}

impl Inodes {
    /// What the journal, or its in-memory substitute, did since the volume was opened.
    pub fn journal_counts(&self) -> JournalCounts {
        self.journal.counts()
    }

    /// The current state of the journal, or of its in-memory substitute.
    pub fn journal_status(&self) -> throughline_journal::Status {
        self.journal.status()
    }

    /// Number of inodes in memory.
    pub fn resident_inodes(&self) -> usize {
        self.inodes.len()
    }

    /// Information about the journal; `None` if the volume has none or an external one.
    ///
    /// # Errors
    /// `Corrupt` for an invalid journal; device errors.
    pub fn log_info(&self) -> Result<Option<LogInfo>> {
        let Some(runs) = replay::log_runs(self)? else {
            return Ok(None);
        };
        let Some(first) = runs.first() else {
            return Err(Error::corrupt("the journal has no blocks"));
        };
        // Bypass the metadata cache, which must not hold blocks that the journal writes.
        let mut block = vec![0; self.geo.block_bytes as usize];
        let offset = first.first.byte_offset(self.geo.block_bytes);
        let offset = offset.unwrap_or(u64::MAX);
        Purpose::Journal.during(|| self.disk.read_at(offset, &mut block))?;
        let blocks = runs.iter().map(|run| u64::from(run.len)).sum();
        let superblock = JournalSuperblock::read(&block)?;
        let log = superblock.validate(self.geo.block_bytes, blocks)?;
        let status = self.journal.status();
        let used = status.log.filter(|_| self.access == Access::Write);
        let block_bytes = u64::from(self.geo.block_bytes);
        Ok(Some(LogInfo {
            bytes: u64::from(superblock.s_maxlen.get()).saturating_mul(block_bytes),
            features: names(log.compat, log.incompat),
            tid: used.map_or(log.sequence, |_| status.committed.0),
            used_bytes: used.map(|used| u64::from(used.used_blocks).saturating_mul(block_bytes)),
            empty: log.start.is_none(),
            errno: log.errno.unsigned_abs(),
        }))
    }
}

fn names(compat: JournalCompat, incompat: JournalIncompat) -> Vec<String> {
    let known = [
        (JournalIncompat::REVOKE, "journal_incompat_revoke"),
        (JournalIncompat::BIT64, "journal_64bit"),
        (JournalIncompat::ASYNC_COMMIT, "journal_async_commit"),
        (JournalIncompat::CSUM_V2, "journal_checksum_v2"),
        (JournalIncompat::CSUM_V3, "journal_checksum_v3"),
        (JournalIncompat::FAST_COMMIT, "fast_commit"),
    ];
    let sum = compat
        .contains(JournalCompat::CHECKSUM)
        .then_some("journal_checksum");
    let incompat = known
        .into_iter()
        .filter(|(feature, _)| incompat.contains(*feature));
    sum.into_iter()
        .chain(incompat.map(|(_, name)| name))
        .map(str::to_owned)
        .collect()
}
