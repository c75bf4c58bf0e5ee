//! Recovery: what a jbd2 journal holds that is not home yet.
//!
//! ```text
//!  superblock ─► log: where it starts, which features          (log.rs)
//!       │
//!       ▼
//!  descriptor, data..., revoke, commit ─► transactions          (extfmt parses, scan.rs walks)
//!       │ each committed transaction: its blocks enter the map, its revokes leave it
//!       ▼
//!  Replay: block of the file system ─► place of its newest committed copy in the journal
//!          and the fast commits on top                         (fast_commit.rs)
//! ```
//!
//! The scan, revoke and replay passes of jbd2 become one pass: a transaction's blocks enter the map at its commit,
//! and a revoke takes out what the same and earlier transactions entered.
//!
//! ```text
//!  read-only: shown by crate::OverlayDevice      to write: write_home, then reset                (apply.rs)
//! ```
//!
//! Invariants:
//! - [`recover`] writes nothing. The map holds places, not contents, so its size is bounded by the number of blocks in
//!   the journal, and the journal's by [`MAX_JOURNAL_BLOCKS`].
//! - Only committed transactions count. A log that ends in a torn one ends before it; a damaged transaction that
//!   had been committed is an error, never a silent loss.
//! - No transaction changes the journal itself.
//! - Every checksum the journal's features promise is verified, data blocks included.

mod append;
mod apply;
mod fast_commit;
mod log;
mod scan;

use throughline_block::Disk;
use throughline_extfmt::FsBlock;
use throughline_extfmt::fast_commit::Change;

use crate::error::Result;

/// The most blocks that a journal may have; what `mke2fs` makes is at most as large.
pub const MAX_JOURNAL_BLOCKS: u32 = 10_240_000;

/// A run of the journal inode's blocks, from its mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalRun {
    /// First block of the run, counted from the journal's start.
    pub journal_block: u32,
    /// Where it lies in the file system.
    pub first: FsBlock,
    /// Blocks in the run.
    pub len: u32,
}

/// One block that the journal holds newer than its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayBlock {
    /// Its home.
    pub home: FsBlock,
    /// The block of the file system, inside the journal, that holds its content.
    pub copy: FsBlock,
    /// The copy's first four bytes stand for the journal's magic number.
    pub escaped: bool,
}

/// What [`recover`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Ascending by home, each home once.
    blocks: Vec<ReplayBlock>,
    /// Committed transactions found in the log.
    pub transactions: u32,
    /// Blocks of these that a revoke took out again.
    pub revoked: u64,
    /// Sequence number of the transaction after the last committed one.
    pub next_sequence: u32,
    /// Block of the journal behind the last committed transaction.
    head: u32,
    /// Where and why the log ended in a torn transaction, if it did.
    pub torn: Option<String>,
    /// The error that the last writer left in the journal's superblock, a positive errno; 0 for none.
    pub recorded_errno: u32,
    /// Fast commits on top of the last transaction, the oldest first: what each says has changed. They are for the file
    /// system to apply, on top of the blocks.
    pub fast_commits: Vec<Vec<Change>>,
}

impl Replay {
    /// Every block to replay, ascending by home.
    pub fn blocks(&self) -> &[ReplayBlock] {
        &self.blocks
    }

    /// Whether nothing has to be replayed.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.fast_commits.is_empty()
    }

    /// The blocks whose homes are `first` up to, not including, `end`.
    pub fn in_range(&self, first: FsBlock, end: FsBlock) -> &[ReplayBlock] {
        let from = self.blocks.partition_point(|block| block.home < first);
        let rest = self.blocks.get(from..).unwrap_or_default();
        rest.get(..rest.partition_point(|block| block.home < end))
            .unwrap_or_default()
    }
}

/// Reads the journal that lies in `runs` of a file system of `fs_blocks` blocks of `block_bytes` bytes, and says
/// what has to be replayed. Reads the journal's superblock and the live part of the log, no more.
///
/// # Errors
/// [`crate::Error::Unsupported`] for features of the journal, or of its fast commits, that are unknown;
/// [`crate::Error::Corrupt`] for a damaged superblock or a damaged transaction that was committed; device errors.
pub fn recover(
    disk: &Disk,
    block_bytes: u32,
    fs_blocks: u64,
    runs: &[JournalRun],
) -> Result<Replay> {
    let log = log::Log::open(disk, block_bytes, fs_blocks, runs)?;
    if log.geometry.start.is_none() {
        return Ok(scan::nothing(&log));
    }
    let mut replay = scan::scan(&log)?;
    replay.fast_commits = fast_commit::find(&log, replay.next_sequence)?;
    Ok(replay)
}

/// Writes everything of `replay`, which [`recover`] found there, home, ascending and in long bios, and flushes. The journal
/// is left as it is, so that a crash in the midst of it recovers again; [`reset`] comes next.
///
/// # Errors
/// Those of the device; [`crate::Error::Corrupt`] as [`recover`].
pub fn write_home(
    disk: &Disk,
    block_bytes: u32,
    fs_blocks: u64,
    runs: &[JournalRun],
    replay: &Replay,
) -> Result<()> {
    log::Log::open(disk, block_bytes, fs_blocks, runs)?.write_home(replay)
}

/// Writes `blocks` of the file system, ascending and each once, as one transaction more into the log, which holds nothing
/// but `replay`, and that is home ([`write_home`]). They are what the fast commits of `replay` come to: from the commit
/// on those are of the past. Answers the replay of that transaction, to be written home and then [`reset`] with.
///
/// # Errors
/// [`crate::Error::Unsupported`] for more blocks than the log has room for; as [`write_home`].
pub fn append(
    disk: &Disk,
    block_bytes: u32,
    fs_blocks: u64,
    runs: &[JournalRun],
    replay: &Replay,
    blocks: &[(FsBlock, Box<[u8]>)],
) -> Result<Replay> {
    log::Log::open(disk, block_bytes, fs_blocks, runs)?.append(replay, blocks)
}

/// Empties a journal whose content, `replay`, is home: the log starts nowhere, the next transaction gets a number that no
/// block in it has, and the recorded error goes (the caller has put it into the volume's superblock). One durable
/// write; none where there is nothing to change.
///
/// # Errors
/// As [`write_home`].
pub fn reset(
    disk: &Disk,
    block_bytes: u32,
    fs_blocks: u64,
    runs: &[JournalRun],
    replay: &Replay,
) -> Result<()> {
    let log = log::Log::open(disk, block_bytes, fs_blocks, runs)?;
    match (log.geometry.start, log.geometry.errno) {
        (None, 0) => Ok(()),
        (None, _) => log.reset(log.geometry.sequence),
        (Some(_), _) => log.reset(replay.next_sequence.wrapping_add(1)),
    }
}
