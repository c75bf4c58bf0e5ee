//! What an internal journal holds that is not home yet.
//!
//! A volume that was not unmounted is read as it will be after the replay, through an overlay that writes nothing. Writing
//! waits until somebody has replayed the journal, and that is checked in the journal itself: a volume whose superblock says
//! nothing of a recovery, while its journal holds transactions, would lose our changes to them.

use std::sync::Arc;

use throughline_block::Disk;
use throughline_extfmt::features::{Compat, Incompat};
use throughline_extfmt::{FileBlock, InodeNumber};
use throughline_journal::OverlayDevice;
use throughline_journal::recovery::{JournalRun, MAX_JOURNAL_BLOCKS, Replay, recover};

use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::map::{self, Kind};

/// Whether the superblock says that the journal has to be replayed.
pub(crate) fn is_needed(sb: &throughline_extfmt::Superblock) -> bool {
    sb.incompat().contains(Incompat::RECOVER)
}

/// The disk of `fs`, which was opened without regard to its journal, as it will be after the replay.
///
/// # Errors
/// `Unsupported` for a journal on another device, or with features that are not known; `Corrupt`; device errors.
pub(crate) fn overlay(fs: &Fs) -> Result<Arc<Disk>> {
    let Some(replay) = read(fs)? else {
        return Err(Error::Unsupported(
            "the journal needs recovery and is on another device (external journal)".into(),
        ));
    };
    let device = OverlayDevice::new(
        Arc::clone(fs.disk.device()),
        Arc::new(replay),
        fs.geo.block_bytes,
    )?;
    Ok(Arc::new(Disk::new(Arc::new(device))?))
}

/// Refuses to write a volume whose journal holds transactions.
pub(crate) fn check_empty(fs: &Fs) -> Result<()> {
    match read(fs)? {
        Some(replay) if !replay.is_empty() => Err(Error::Unsupported(
            "writing: the journal holds transactions although the superblock says that it needs no recovery. \
             Run `e2fsck -f` on the image, or open it read-only"
                .into(),
        )),
        _ => Ok(()),
    }
}

/// What the internal journal holds; `None` where there is none.
fn read(fs: &Fs) -> Result<Option<Replay>> {
    let ino = InodeNumber(fs.superblock.lock().s_journal_inum.get());
    if !fs.geo.compat.contains(Compat::HAS_JOURNAL) || ino == InodeNumber::NONE {
        return Ok(None);
    }
    let runs = runs(fs, ino).map_err(|e| e.in_inode(ino))?;
    Ok(Some(recover(
        &fs.disk,
        fs.geo.block_bytes,
        fs.geo.blocks,
        &runs,
    )?))
}

/// Where the journal's blocks are.
fn runs(fs: &Fs, ino: InodeNumber) -> Result<Vec<JournalRun>> {
    let inode = fs.inode(ino)?;
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
