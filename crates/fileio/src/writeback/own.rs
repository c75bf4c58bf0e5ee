//! Flushing a few dirty blocks on the waiting thread. The flusher would cost two context switches, more than
//! the device needs for so little; and concurrent waiters write in parallel.
//!
//! Only with exclusive access: if anything of the file were under write-back, a size or a failed run could be
//! overtaken. Blocks that fail here are dirty again, and the flusher is notified: it retries the file and
//! handles all its flushes from then on.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use super::inbox::Message;
use super::run::Run;
use crate::cache::Backing;
use crate::error::Result;

/// Maximum dirty bytes of a file for this path; more is left to the flusher.
const MAX_BYTES: u64 = 64 << 10;

/// After this many such flushes the flusher looks for files that it can release.
const LOOK_AFTER: u64 = 1024;

impl Shared {
    /// Writes and commits the dirty blocks in the range, if they are few. `None`: left to the flusher.
    pub(super) fn flush_here(
        &self,
        host: &Arc<dyn Backing>,
        range: &Range<u64>,
    ) -> Option<Result<()>> {
        let space = host.space();
        if space.dirty_bytes() > MAX_BYTES || space.has_failed() || space.refused.is_any() {
            return None;
        }
        let _exclusive = space.begin_exclusive()?;
        // Blocks past the current last one come from writes that begin after this call.
        let block_bytes = u64::from(space.block_bytes());
        let end = range.end.min(space.size().next_multiple_of(block_bytes));
        let mut from = match host.whole_bytes() {
            0 => range.start,
            _ => 0,
        };
        while from < end
            && let Some(dirty) = space.take_dirty(from..end, MAX_BYTES)
        {
            from = dirty.range.end;
            self.counting.runs.add(1);
            self.counting.bytes.add(dirty.range.end - dirty.range.start);
            let mut run = Run::new(Arc::clone(host), dirty);
            run.write(&self.disk);
            let outcome = run.finish();
            self.counting.commits.add(u64::from(outcome.has_committed));
            if let Err(error) = outcome.result {
                self.counting.errors.add(1);
                self.inbox
                    .send(Message::Failed(Arc::clone(host), error.clone()));
                return Some(Err(error));
            }
        }
        self.counting.own_flushes.add(1);
        if self.own_flushes_since_look.fetch_add(1, Ordering::Relaxed) + 1 == LOOK_AFTER {
            self.inbox.send(Message::Look);
        }
        Some(Ok(()))
    }
}
