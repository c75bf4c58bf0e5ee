//! A few dirty blocks that somebody waits for, written by whoever waits: the flusher would be two switches of threads, more
//! than the device takes for so little; and many who wait at once write at once.
//!
//! Only alone: with anything of the file under write-back, a size or a run that fails could overtake another. What fails here
//! is dirty again, and the flusher is told: it tries such a file again, and from then on all of its flushes are the flusher's.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use super::inbox::Message;
use super::run::Run;
use crate::cache::Backing;
use crate::error::Result;

/// A file with more than this dirty is the flusher's.
const MOST_BYTES: u64 = 64 << 10;

/// After so many of these the flusher looks which files it need not know any more.
const LOOK_AFTER: u64 = 1024;

impl Shared {
    /// Writes and commits what is dirty in the range, where that is little. `None`: it is left to the flusher.
    pub(super) fn flush_here(
        &self,
        host: &Arc<dyn Backing>,
        range: &Range<u64>,
    ) -> Option<Result<()>> {
        let space = host.space();
        if space.dirty_bytes() > MOST_BYTES || space.has_failed() {
            return None;
        }
        let _alone = space.begin_alone()?;
        // What is behind the last block as it is now is of writes that begin after this.
        let block_bytes = u64::from(space.block_bytes());
        let end = range.end.min(space.size().next_multiple_of(block_bytes));
        let mut from = match host.whole_bytes() {
            0 => range.start,
            _ => 0,
        };
        while from < end
            && let Some(dirty) = space.take_dirty(from..end, MOST_BYTES)
        {
            from = dirty.range.end;
            self.counting.runs.add(1);
            self.counting.bytes.add(dirty.range.end - dirty.range.start);
            let mut run = Run::new(Arc::clone(host), dirty);
            run.write(&self.disk);
            let outcome = run.settle();
            self.counting.commits.add(u64::from(outcome.has_committed));
            if let Err(error) = outcome.result {
                self.counting.errors.add(1);
                self.inbox
                    .send(Message::Failed(Arc::clone(host), error.clone()));
                return Some(Err(error));
            }
        }
        self.counting.own_flushes.add(1);
        if self.unlooked.fetch_add(1, Ordering::Relaxed) + 1 == LOOK_AFTER {
            self.inbox.send(Message::Look);
        }
        Some(Ok(()))
    }
}
