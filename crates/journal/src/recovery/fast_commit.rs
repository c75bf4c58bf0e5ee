//! Fast commits: small logical records in an area behind the log, written between two full commits.
//!
//! ```text
//!   log: ... commit 7 │ area: head(tid 8) tags tail, tags tail, ... ╳ torn, or left over from before
//! ```
//!
//! They say what has changed on top of the last committed transaction, in terms of inodes, ranges and names, not of
//! blocks. Here they are found and verified; the file system applies them.
//!
//! Invariant: only whole ones count, each with a tail of the transaction that would have come next and the right sum, from
//! the first on without a gap.

use throughline_extfmt::fast_commit::{
    Change, Head, Record, SUPPORTED_FEATURES, Tag, Tail, records,
};
use throughline_extfmt::jbd2::JournalIncompat;
use zerocopy::FromBytes;

use super::log::Log;
use crate::error::{Error, Result};

/// The most bytes of fast commits that are replayed; mke2fs makes areas of 1 MiB for most volumes.
const MAX_BYTES: u64 = 64 << 20;

/// The changes of each fast commit on top of the recovered log, whose next sequence number is `tid`.
///
/// # Errors
/// [`Error::Unsupported`] for fast commits with features that are not known, and for very many; those of the device.
pub(crate) fn find(log: &Log<'_>, tid: u32) -> Result<Vec<Vec<Change>>> {
    let geometry = &log.geometry;
    // The block between the log and the area is not used.
    let first = geometry.end.saturating_add(1);
    let end = geometry.end.saturating_add(geometry.fast_commit_blocks);
    if !geometry.incompat.contains(JournalIncompat::FAST_COMMIT) {
        return Ok(Vec::new());
    }
    let mut commits = Commits::new(tid);
    for at in first..end {
        if !commits.take(&log.read(at, 1)?)? {
            break;
        }
        if u64::from(at - first) * u64::from(log.block_bytes()) > MAX_BYTES {
            let text = format!("over {MAX_BYTES} bytes of fast commits in the journal");
            return Err(Error::Unsupported(text));
        }
    }
    Ok(commits.whole)
}

/// The fast commits read so far.
struct Commits {
    tid: u32,
    whole: Vec<Vec<Change>>,
    /// Of the one that has no tail yet.
    open: Vec<Change>,
    sum: u32,
}

impl Commits {
    fn new(tid: u32) -> Self {
        Self {
            tid,
            whole: Vec::new(),
            open: Vec::new(),
            sum: 0,
        }
    }

    /// Goes on with a block of the area; `false`: they end in it.
    fn take(&mut self, block: &[u8]) -> Result<bool> {
        for record in records(block) {
            let Ok(record) = record else {
                return Ok(false);
            };
            self.sum = record.sum(self.sum, block);
            let goes_on = match record.tag {
                Tag::Head => self.head(&record)?,
                Tag::Tail => self.tail(&record),
                _ => self.change(&record),
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn head(&self, record: &Record<'_>) -> Result<bool> {
        let Ok((head, _)) = Head::ref_from_prefix(record.value) else {
            return Ok(false);
        };
        let unknown = head.fc_features.get() & !SUPPORTED_FEATURES;
        if head.fc_tid.get() != self.tid {
            return Ok(false);
        }
        if unknown != 0 {
            let text = format!("fast commits with features {unknown:#x}");
            return Err(Error::Unsupported(text));
        }
        Ok(true)
    }

    fn tail(&mut self, record: &Record<'_>) -> bool {
        let is_right = Tail::ref_from_prefix(record.value)
            .is_ok_and(|(tail, _)| tail.fc_tid.get() == self.tid && tail.fc_crc.get() == self.sum);
        if is_right {
            self.whole.push(std::mem::take(&mut self.open));
            self.sum = 0;
        }
        is_right
    }

    fn change(&mut self, record: &Record<'_>) -> bool {
        match record.change() {
            Ok(change) => {
                self.open.extend(change);
                true
            }
            Err(_) => false,
        }
    }
}
