//! Recovery: finds the blocks of a jbd2 journal that are not home yet.
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
//! The scan, revoke and replay passes of jbd2 are one pass here: at a transaction's commit its blocks are
//! added to the map, and its revokes remove blocks added by the same and earlier transactions.
//!
//! ```text
//!  read-only: shown by crate::OverlayDevice      to write: write_home, then reset                (apply.rs)
//! ```
//!
//! Invariants:
//! - [`recover`] writes nothing. The map holds places, not contents: its size is bounded by the number of
//!   journal blocks, which is at most [`MAX_JOURNAL_BLOCKS`].
//! - Only committed transactions count. A torn transaction at the end of the log is ignored. A damaged
//!   transaction that was committed is an error, never a silent loss.
//! - No transaction changes the journal itself.
//! - Every checksum that the journal's features call for is verified, including those of data blocks.
//!
//! Where the kernel (6.18) and `e2fsck` (1.47) differ;
//! `testing/tests/untrusted/damaged_journal/answers.rs` prints all
//! answers:
//! - A commit block that is torn behind its fields, so that its checksum is wrong only because of old bytes
//!   in its other sectors, commits, as in the kernel: all of the transaction was on the device before the
//!   commit block was written, and its other checksums are verified. `e2fsck` ends the log before it.
//! - A damaged revoke block in a committed transaction is an error, as in the kernel, which does not mount:
//!   without its records, blocks that were freed and hold data by now would be overwritten with old metadata.
//!   `e2fsck` replays nothing and repairs what it finds.
//! - So is a commit block with wrong fields, if a later one is right: transactions behind it were committed.
//!   `e2fsck` drops them. If it is the last one, the log ends before it, as in `e2fsck`: nothing tells a
//!   damaged block from a torn one, for which no sync has returned. The kernel does not mount.

mod append;
mod apply;
mod fast_commit;
mod log;
mod scan;

use throughline_block::Disk;
use throughline_extfmt::FsBlock;
use throughline_extfmt::fast_commit::Change;

use crate::error::Result;
use crate::features;

/// The most blocks that a journal may have; `mke2fs` makes no larger ones.
pub const MAX_JOURNAL_BLOCKS: u32 = 10_240_000;

/// A run of the journal inode's blocks, from its mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalRun {
    /// The run's first block, counted from the journal's start.
    pub journal_block: u32,
    /// The run's first block in the file system.
    pub first: FsBlock,
    /// Blocks in the run.
    pub len: u32,
}

/// A block with a newer copy in the journal than at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayBlock {
    /// Its home.
    pub home: FsBlock,
    /// The file system block, inside the journal, that holds the newer content.
    pub copy: FsBlock,
    /// The copy is escaped: its first four bytes stand for the journal's magic number.
    pub escaped: bool,
}

/// The result of [`recover`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Ascending by home; each home at most once.
    blocks: Vec<ReplayBlock>,
    /// Committed transactions found in the log.
    pub transactions: u32,
    /// Blocks of these transactions that a revoke removed.
    pub revoked: u64,
    /// The sequence number of the transaction after the last committed one.
    pub next_sequence: u32,
    /// The block of the journal after the last committed transaction.
    head: u32,
    /// If the log ends in a torn transaction: where, and what is wrong with it.
    pub torn: Option<String>,
    /// The error recorded in the journal's superblock, as a positive errno; 0 for none.
    pub recorded_errno: u32,
    /// The changes of each fast commit on top of the last transaction, oldest first. The file system must
    /// apply them on top of the blocks.
    pub fast_commits: Vec<Vec<Change>>,
}

impl Replay {
    /// The blocks to replay, ascending by home.
    pub fn blocks(&self) -> &[ReplayBlock] {
        &self.blocks
    }

    /// Whether there is nothing to replay.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.fast_commits.is_empty()
    }

    /// The blocks whose homes are in `first..end`.
    pub fn in_range(&self, first: FsBlock, end: FsBlock) -> &[ReplayBlock] {
        let from = self.blocks.partition_point(|block| block.home < first);
        let rest = self.blocks.get(from..).unwrap_or_default();
        rest.get(..rest.partition_point(|block| block.home < end))
            .unwrap_or_default()
    }
}

/// Finds what must be replayed from the journal in `runs` of a file system of `fs_blocks` blocks of
/// `block_bytes` bytes. Reads only the journal's superblock, the live part of the log and the fast commits.
///
/// # Errors
/// [`crate::Error::Unsupported`] for unknown features of the journal or of its fast commits;
/// [`crate::Error::Corrupt`] for a damaged superblock or a damaged transaction that was committed; device
/// errors.
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

/// Checks that the journal can be replayed to the end, and written to afterwards. Call it before the first
/// write, so that a volume that is refused is not changed. `appended` is the number of blocks for [`append`].
///
/// # Errors
/// [`crate::Error::Unsupported`] for a log that is too short; otherwise as [`recover`].
pub fn check(
    disk: &Disk,
    block_bytes: u32,
    fs_blocks: u64,
    runs: &[JournalRun],
    appended: usize,
) -> Result<()> {
    let log = log::Log::open(disk, block_bytes, fs_blocks, runs)?;
    features::check_size(&log.geometry)?;
    log.check_room(appended)
}

/// Writes all blocks of `replay`, found by [`recover`] in the same journal, home in ascending order and long
/// bios, and flushes. The journal is not changed, so a crash during the call is recovered again. Call
/// [`reset`] next.
///
/// # Errors
/// Device errors; otherwise as [`recover`].
pub fn write_home(
    disk: &Disk,
    block_bytes: u32,
    fs_blocks: u64,
    runs: &[JournalRun],
    replay: &Replay,
) -> Result<()> {
    log::Log::open(disk, block_bytes, fs_blocks, runs)?.write_home(replay)
}

/// Appends `blocks` of the file system, ascending and distinct, to the log as one more transaction. They are
/// the result of applying the fast commits of `replay`, which the new transaction's commit supersedes.
/// `replay` must be all that the log holds, and must be home ([`write_home`]); [`check`] has found room.
/// Returns the replay of the new transaction, to be passed to [`write_home`] and then to [`reset`].
///
/// # Errors
/// As [`write_home`].
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

/// Empties a journal whose content, `replay`, is home: the log is marked empty, the next transaction gets a
/// number that no block of the log carries, and the recorded error is cleared (the caller has copied it to
/// the volume's superblock). One durable write; none if nothing has to change.
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
