//! The plug: briefly holds bios back, so that adjacent ones are merged and many are submitted at once.
//!
//! It is flushed at [`MAX_BIOS`] bios, or as soon as the last one is [`LARGE_BYTES`] long: a bio of that size
//! gains nothing by waiting. A new bio is merged only with the last one.

use crate::bio::Bio;
use crate::limits::BioLimits;

/// The most bios that a plug holds.
const MAX_BIOS: usize = 32;

/// A bio of at least this length, in bytes, is submitted at once.
pub(crate) const LARGE_BYTES: u64 = 128 * 1024;

/// Bios held back.
#[derive(Debug, Default)]
pub(crate) struct Plug<'env> {
    bios: Vec<Bio<'env>>,
}

impl<'env> Plug<'env> {
    /// Adds `bio`. Returns whether it was merged with the last one.
    pub(crate) fn add(&mut self, bio: Bio<'env>, limits: &BioLimits, target_bytes: u64) -> bool {
        if let Some(last) = self.bios.last_mut()
            && may_merge(last, &bio, limits, target_bytes)
        {
            last.append(bio);
            return true;
        }
        self.bios.push(bio);
        false
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bios.is_empty()
    }

    /// Whether the plug should be flushed.
    pub(crate) fn is_due(&self) -> bool {
        self.bios.len() >= MAX_BIOS || self.last().is_some_and(is_large)
    }

    /// The last bio, including what was merged into it.
    pub(crate) fn last(&self) -> Option<&Bio<'env>> {
        self.bios.last()
    }

    /// Removes the bios in the order in which they were added. The plug keeps its allocation.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Bio<'env>> {
        self.bios.drain(..)
    }
}

/// Whether `bio` is large enough to be submitted alone.
pub(crate) fn is_large(bio: &Bio<'_>) -> bool {
    bio.len_bytes >= LARGE_BYTES
}

fn may_merge(last: &Bio<'_>, next: &Bio<'_>, limits: &BioLimits, target_bytes: u64) -> bool {
    last.op == next.op
        && last.end() == next.offset_bytes
        && next.end() <= limits.end_of_bio(last.offset_bytes, target_bytes).0
        && last.segments.len() + next.segments.len() <= limits.max_segments
        && next
            .segments
            .first()
            .is_some_and(|first| limits.may_follow(last.memory_end(), first.addr()))
}
