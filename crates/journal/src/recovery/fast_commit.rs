//! Fast commits: small logical records in an area after the log, written between two full commits.
//!
//! ```text
//!   log: ... commit 7 │ area: head(tid 8) tags tail, tags tail, ... ╳ torn, or left over from before
//! ```
//!
//! They describe changes on top of the last committed transaction in terms of inodes, ranges and names, not
//! of blocks. This module finds and verifies them; the file system applies them.
//!
//! Invariant: a fast commit counts only if it is complete, its tail carries the number of the next
//! transaction and the right checksum, and all fast commits before it count.

use throughline_extfmt::fast_commit::{
    Change, Head, Record, SUPPORTED_FEATURES, Tag, Tail, records,
};
use throughline_extfmt::jbd2::JournalIncompat;
use zerocopy::FromBytes;

use super::log::Log;
use crate::error::{Error, Result};

/// The most bytes of fast commits that are replayed. `mke2fs` makes areas of 1 MiB for most volumes.
const MAX_BYTES: u64 = 64 << 20;

/// Returns the changes of each fast commit on top of the recovered log, whose next sequence number is `tid`.
///
/// # Errors
/// [`Error::Unsupported`] for fast commits with unknown features, and for more than [`MAX_BYTES`]; device
/// errors.
pub(crate) fn find(log: &Log<'_>, tid: u32) -> Result<Vec<Vec<Change>>> {
    let geometry = &log.geometry;
    // The block between the log and the area is unused.
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
            let text = format!("more than {MAX_BYTES} bytes of fast commits in the journal");
            return Err(Error::Unsupported(text));
        }
    }
    Ok(commits.whole)
}

/// The fast commits read so far.
struct Commits {
    tid: u32,
    whole: Vec<Vec<Change>>,
    /// The changes of the fast commit whose tail is still to come.
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

    /// Reads the next block of the area. `false` if the fast commits end in it.
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
            let text = format!("fast commits with unknown features {unknown:#x}");
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
