//! Fast commits: small logical records behind the log, written between two full commits.
//!
//! They are detected, not replayed: a journal whose area holds some for the transaction at hand is refused, so
//! that nothing of them is lost.

use throughline_extfmt::fast_commit::{Head, Tag, records};
use throughline_extfmt::jbd2::JournalIncompat;
use zerocopy::FromBytes;

use super::log::Log;
use crate::error::{Error, Result};

/// Fails if the fast-commit area starts with a fast commit on top of the recovered log, whose next sequence number
/// is `next_sequence`. Older ones are left over from before a full commit, and mean nothing.
pub(crate) fn refuse_live(log: &Log<'_>, next_sequence: u32) -> Result<()> {
    // The block between the log and the area is not used.
    let first = log.geometry.end.saturating_add(1);
    let end = log
        .geometry
        .end
        .saturating_add(log.geometry.fast_commit_blocks);
    if !log.geometry.incompat.contains(JournalIncompat::FAST_COMMIT) || first >= end {
        return Ok(());
    }
    let bytes = log.read(first, 1)?;
    let sequence = match records(&bytes).next() {
        Some(Ok(record)) if record.tag == Tag::Head => Head::read_from_prefix(record.value).ok(),
        _ => None,
    };
    if sequence.is_some_and(|(head, _)| head.fc_tid.get() == next_sequence) {
        let text = "fast commits in the journal: mount the image with Linux, or run e2fsck, to replay them";
        return Err(Error::Unsupported(text.into()));
    }
    Ok(())
}
