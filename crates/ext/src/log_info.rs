//! What is to be told of a volume's journal.

pub use throughline_journal::Counts as JournalCounts;

use throughline_block::Purpose;
use throughline_extfmt::jbd2::{JournalCompat, JournalIncompat, JournalSuperblock};

use crate::base::Access;
use crate::error::{Error, Result};
use crate::inode::Inodes;
use crate::replay;

/// An internal journal, as its superblock says and, while it is written to, as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogInfo {
    /// Bytes of it.
    pub bytes: u64,
    /// Names of its features, as `dumpe2fs` prints them.
    pub features: Vec<String>,
    /// Number of the newest durable transaction while the volume is open for writing, else of the oldest that is in the
    /// journal, or of the next one if it is empty.
    pub tid: u32,
    /// Bytes of it that hold transactions; `None` where the volume is not open for writing.
    pub used_bytes: Option<u64>,
    /// Whether it holds transactions, by its own account.
    pub empty: bool,
    /// The error that a writer left in it, a positive errno; 0 for none.
    pub errno: u32,
}

impl Inodes {
    /// What the journal, or what stands in for one, did since the volume was opened.
    pub fn journal_counts(&self) -> JournalCounts {
        self.journal.counts()
    }

    /// How the journal, or what stands in for one, does at this moment.
    pub fn journal_status(&self) -> throughline_journal::Status {
        self.journal.status()
    }

    /// Inodes in memory.
    pub fn resident_inodes(&self) -> usize {
        self.inodes.len()
    }

    /// What is known of the journal; `None` where the volume has none, or has it on another device.
    ///
    /// # Errors
    /// `Corrupt` for a journal that cannot be; device errors.
    pub fn log_info(&self) -> Result<Option<LogInfo>> {
        let Some(runs) = replay::log_runs(self)? else {
            return Ok(None);
        };
        let Some(first) = runs.first() else {
            return Err(Error::corrupt("the journal has no blocks"));
        };
        // Past the metadata cache, which must not keep what the journal writes.
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
