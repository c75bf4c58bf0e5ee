//! Replays a journal: the changes that it holds and that are not in place yet.
//!
//! ```text
//!   log ─► blocks ──────────────────────────┬─► to read: laid over the device
//!       └► fast commits ─► applied in memory ┘   to write: home. First the blocks of the log; then the
//!                          (fast_commit/)        result of the fast commits, as one more transaction in
//!                                                the log; then the journal is emptied.
//! ```
//!
//! A volume that was not closed is read in its state after the replay, through an overlay that writes
//! nothing. Before the volume is written to, the replay is written in place: [`write_home`]. If the
//! superblock does not ask for recovery but the journal holds transactions, a later replay would overwrite
//! new changes; such a volume is not opened for writing: [`check_empty`].

mod fast_commit;
mod place;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use throughline_block::Disk;
use throughline_extfmt::features::{Compat, Incompat};
use throughline_extfmt::inode::FileType;
use throughline_extfmt::superblock::State;
use throughline_extfmt::{FileBlock, InodeNumber};
use throughline_journal::OverlayDevice;
use throughline_journal::recovery::{
    JournalRun, MAX_JOURNAL_BLOCKS, Replay, append, check, recover, reset,
    write_home as write_log_home,
};

use crate::error::{Error, Reason, Result};
use crate::external;
use crate::fs::Fs;
use crate::inode::Inodes;
use crate::map::{self, Kind};
use crate::primary;

/// Whether the superblock says that the journal must be replayed.
pub(crate) fn is_needed(sb: &throughline_extfmt::Superblock) -> bool {
    sb.incompat().contains(Incompat::RECOVER)
}

/// What a replay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Committed transactions of the log.
    pub transactions: u32,
    /// Distinct blocks of the volume in them.
    pub blocks: u64,
    /// Block copies cancelled by revokes.
    pub revoked: u64,
    /// Fast commits applied on top.
    pub fast_commits: u32,
    /// Why the log ended in a torn transaction, if it did.
    pub torn: Option<String>,
    /// The last writer's recorded error, as a positive errno; 0 for none. If set, the volume is marked as
    /// damaged.
    pub recorded_errno: u32,
}

impl Replayed {
    fn of(replay: &Replay) -> Self {
        Self {
            transactions: replay.transactions,
            blocks: replay.blocks().len() as u64,
            revoked: replay.revoked,
            fast_commits: u32::try_from(replay.fast_commits.len()).unwrap_or(u32::MAX),
            torn: replay.torn.clone(),
            recorded_errno: replay.recorded_errno,
        }
    }
}

/// Writes the contents of `fs`'s journal in place and empties the journal. `fs` was opened without its
/// journal; its cached data is outdated afterwards, so the caller must drop it and open the volume again. The
/// superblock keeps its recovery mark, which must be set while the volume is open for writing; replaying an
/// empty journal is fast.
///
/// A crash at any point leaves a volume that recovers to the same state. Nothing is written before `admit`
/// has checked the recovered state and the last writer's error, so that a volume which would be refused later
/// is not modified.
///
/// # Errors
/// As [`overlay`]; those of `admit`; write errors, which leave the journal unchanged.
pub(crate) fn write_home(
    fs: &Inodes,
    admit: impl FnOnce(&Arc<Disk>, u32) -> Result<()>,
) -> Result<Replayed> {
    let Some(Found { runs, replay }) = read(fs)? else {
        return Err(external());
    };
    let applied = apply_fast_commits(fs, &replay)?;
    let recovered = shown(fs, &replay, applied.as_deref())?;
    admit(&recovered, replay.recorded_errno)?;
    let (disk, block_bytes, blocks) = (&fs.disk, fs.geo.block_bytes, fs.geo.blocks);
    let appended = applied.map(|applied| applied.written());
    let count = appended.as_ref().map_or(0, |appended| appended.len());
    check(disk, block_bytes, blocks, &runs, count)?;
    write_log_home(disk, block_bytes, blocks, &runs, &replay)?;
    let mut last = replay.clone();
    if let Some(appended) = appended {
        last = append(disk, block_bytes, blocks, &runs, &replay, &appended)?;
        write_log_home(disk, block_bytes, blocks, &runs, &last)?;
    }
    if replay.recorded_errno != 0 {
        primary::edit(disk, |sb| sb.set_state(sb.state() | State::ERROR))?;
    }
    reset(disk, block_bytes, blocks, &runs, &last)?;
    Ok(Replayed::of(&replay))
}

fn external() -> Error {
    Error::Unsupported(format!(
        "the journal needs recovery and is on another device (external journal): {}",
        external::NEXT
    ))
}

/// The disk of `fs`, which was opened without its journal, in its state after the replay.
///
/// # Errors
/// `Unsupported` for an external journal that was not named, or one with unknown features; `Corrupt`; device
/// errors.
pub(crate) fn overlay(fs: &Inodes) -> Result<Arc<Disk>> {
    let Some(Found { replay, .. }) = read(fs)? else {
        return Err(external());
    };
    let applied = apply_fast_commits(fs, &replay)?;
    shown(fs, &replay, applied.as_deref())
}

/// The disk of `fs` overlaid with `replay`; `applied` has its fast commits, if any.
fn shown(fs: &Inodes, replay: &Replay, applied: Option<&OverlayDevice>) -> Result<Arc<Disk>> {
    let device = match applied {
        Some(applied) => applied.read_only(),
        None => OverlayDevice::new(
            Arc::clone(fs.disk.device()),
            Arc::new(replay.clone()),
            fs.geo.block_bytes,
        )?,
    };
    Ok(Arc::new(Disk::new(Arc::new(device))?))
}

/// The most metadata that fast commits may change, in bytes.
const MAX_APPLIED_BYTES: usize = 128 << 20;

/// The device overlaid with the whole of `replay`, fast commits applied in memory; `None` if there are none.
fn apply_fast_commits(fs: &Inodes, replay: &Replay) -> Result<Option<Arc<OverlayDevice>>> {
    if replay.fast_commits.is_empty() {
        return Ok(None);
    }
    let device = Arc::new(OverlayDevice::with_room(
        Arc::clone(fs.disk.device()),
        Arc::new(replay.clone()),
        fs.geo.block_bytes,
        MAX_APPLIED_BYTES / fs.geo.block_bytes as usize,
    )?);
    let disk = Arc::new(Disk::new(Arc::clone(&device) as _)?);
    let volume = Fs::open_in_memory(disk, MAX_APPLIED_BYTES)?;
    let applied = fast_commit::apply(&volume, &replay.fast_commits);
    volume.abandon();
    applied?;
    Ok(Some(device))
}

/// Fails if the journal holds transactions: the volume must not be written.
pub(crate) fn check_empty(fs: &Inodes) -> Result<()> {
    match read(fs)? {
        Some(Found { replay, .. }) if !replay.is_empty() => Err(Error::Unsupported(
            "writing: the journal holds transactions although the superblock says that it needs no recovery. \
             Run `e2fsck -f` on the image, or open it read-only"
                .into(),
        )),
        _ => Ok(()),
    }
}

/// A journal.
struct Found {
    runs: Vec<JournalRun>,
    replay: Replay,
}

/// The blocks of the journal; `None` if there is none, or if it is on another device that was not named.
pub(crate) fn log_runs(fs: &Inodes) -> Result<Option<Vec<JournalRun>>> {
    if let Some(external) = &fs.external {
        return Ok(Some(external.runs()));
    }
    let ino = InodeNumber(fs.superblock.lock().s_journal_inum.get());
    if !fs.geo.compat.contains(Compat::HAS_JOURNAL) || ino == InodeNumber::NONE {
        return Ok(None);
    }
    Ok(Some(runs(fs, ino).map_err(|e| e.in_inode(ino))?))
}

/// The blocks of the journal of a volume to be written; fails if they overlap other structures.
pub(crate) fn log_runs_to_write(fs: &Inodes) -> Result<Option<Vec<JournalRun>>> {
    let runs = log_runs(fs)?;
    if let Some(runs) = runs.as_ref().filter(|_| fs.external.is_none()) {
        place::check(fs, runs)?;
    }
    Ok(runs)
}

/// The contents of the journal; `None` as for [`log_runs`].
fn read(fs: &Inodes) -> Result<Option<Found>> {
    let Some(runs) = log_runs(fs)? else {
        return Ok(None);
    };
    let replay = recover(&fs.disk, fs.geo.block_bytes, fs.geo.blocks, &runs)?;
    Ok(Some(Found { runs, replay }))
}

/// The journal's blocks.
fn runs(fs: &Inodes, ino: InodeNumber) -> Result<Vec<JournalRun>> {
    let inode = match fs.inode(ino) {
        Err(Error::Caller(Reason::NotFound)) => {
            return Err(Error::corrupt("the journal's inode is not in use"));
        }
        inode => inode?,
    };
    if inode.file_type() != Some(FileType::Regular) {
        return Err(Error::corrupt("the journal is not a regular file"));
    }
    let blocks = inode.image().size_bytes(&fs.geo)? >> fs.geo.block_log;
    let blocks = u32::try_from(blocks)
        .ok()
        .filter(|blocks| *blocks <= MAX_JOURNAL_BLOCKS);
    let blocks = blocks.ok_or_else(|| {
        Error::corrupt(format!("the journal has over {MAX_JOURNAL_BLOCKS} blocks"))
    })?;
    let mut runs = Vec::new();
    let mut at = 0;
    while at < blocks {
        let found = map::lookup(fs, &inode, FileBlock(at), blocks - at)?;
        let Kind::Data(first) = found.kind else {
            return Err(Error::corrupt(format!(
                "the journal has a hole at its block {at}"
            )));
        };
        let len = found.len_blocks.clamp(1, blocks - at);
        runs.push(JournalRun {
            journal_block: at,
            first,
            len,
        });
        at += len;
    }
    Ok(runs)
}
