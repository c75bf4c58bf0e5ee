//! Fast commits: small logical records behind the log, written between two full commits.
//!
//! They are detected, not replayed: a journal whose area holds some for the transaction at hand is refused, so
//! that nothing of them is lost.

use throughline_extfmt::jbd2::JournalIncompat;

use super::log::Log;
use crate::error::{Error, Result};

/// The tag that begins the first fast commit after a full one: its value has the features and the sequence number.
const TAG_HEAD: u16 = 9;
/// Bytes of the head tag's value.
const HEAD_BYTES: u16 = 8;

/// Fails if the fast-commit area starts with a fast commit on top of the recovered log, whose next sequence number
/// is `next_sequence`. Older ones are left over from before a full commit, and mean nothing.
pub(crate) fn refuse_live(log: &Log<'_>, next_sequence: u32) -> Result<()> {
    // The block between the log and the area is not used.
    let first = log.last.saturating_add(1);
    if !log.incompat.contains(JournalIncompat::FAST_COMMIT) || first >= log.fc_end {
        return Ok(());
    }
    let bytes = log.read(first, 1)?;
    let half = |at: usize| {
        bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .map(|half| u16::from_le_bytes(*half))
    };
    let word = |at: usize| {
        bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .map(|word| u32::from_le_bytes(*word))
    };
    if half(0) == Some(TAG_HEAD) && half(2) == Some(HEAD_BYTES) && word(8) == Some(next_sequence) {
        let text = "fast commits in the journal: mount the image with Linux, or run e2fsck, to replay them";
        return Err(Error::Unsupported(text.into()));
    }
    Ok(())
}
