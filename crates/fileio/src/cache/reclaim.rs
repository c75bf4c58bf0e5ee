//! Memory for folios: from the pool, or from dropping clean folios. Nothing here writes to the device.
//!
//! Must not be called with a span locked.

use throughline_device::{MAX_PAGES_BYTES, Pages};

use crate::cache::PageCache;
use crate::cache::folio::{Folio, MIN_FOLIO_BYTES};
use crate::cache::policy::{Entry, Queue};
use crate::cache::span::{Span, SpanState, number_of};
use crate::cache::waits::Ticket;
use crate::error::Result;

/// Divisor of the budget: the largest folio, so that a small budget still holds several.
const BUDGET_SHARE: u64 = 16;

/// The largest allocation unit of a file, and so the largest folio that may be required.
const MAX_UNIT_BYTES: u64 = 64 << 10;

/// Divisor of the budget, and limit in bytes, for what one reader fills at a time.
const FILL_SHARE: u64 = 8;
const MAX_FILL_BYTES: u64 = 32 << 20;

/// Shorter runs never count as long, however small the budget is.
const LONG_RUN_BYTES: u64 = 64 << 20;

/// The key for threads that wait for memory.
const MEMORY_KEY: u64 = u64::MAX;

/// Result of an eviction attempt.
enum Eviction {
    Evicted(Box<Folio>),
    /// Recently used: stays.
    Used,
    /// Busy, and queued again when idle; or already gone.
    Nothing,
}

impl PageCache {
    /// The current largest folio, in bytes. A file's allocation unit may be larger.
    pub(crate) fn most_folio_bytes(&self) -> u64 {
        let share = (self.pool.max_bytes() / BUDGET_SHARE).max(MIN_FOLIO_BYTES);
        (1 << share.ilog2()).min(MAX_PAGES_BYTES as u64)
    }

    /// Maximum bytes that one reader fills at a time.
    pub(crate) fn most_fill_bytes(&self) -> u64 {
        (self.pool.max_bytes() / FILL_SHARE).clamp(MAX_UNIT_BYTES, MAX_FILL_BYTES)
    }

    /// Takes memory of `bytes`, a power of two, or halves it while memory is short, down to `least`. `None`:
    /// nothing is free and nothing can be dropped.
    pub(crate) fn take_memory(&self, bytes: u64, least: u64) -> Option<Pages> {
        let mut bytes = bytes;
        loop {
            if let Some(pages) = self.take_exactly(bytes) {
                return Some(pages);
            }
            if bytes <= least {
                return None;
            }
            bytes /= 2;
        }
    }

    /// Takes memory after dropping what the budget lacks for it. If the budget has room, but only in smaller
    /// pieces, nothing is dropped for a large piece: the whole cache might go before one large piece becomes
    /// free.
    fn take_exactly(&self, bytes: u64) -> Option<Pages> {
        loop {
            if let Some(pages) = self.pool.take(bytes as usize) {
                return Some(pages);
            }
            let after = self.pool.used_bytes().saturating_add(bytes);
            let lacking = after.saturating_sub(self.pool.max_bytes());
            if lacking == 0 && bytes > MAX_UNIT_BYTES {
                return None;
            }
            // Other threads may take what was dropped here.
            if self.reclaim(lacking.max(1), false) == 0 {
                return self.pool.take(bytes as usize);
            }
        }
    }

    /// As [`PageCache::take_memory`]. If there is no memory, waits a bounded time for some to become free and
    /// returns `None`; the caller retries.
    ///
    /// # Errors
    /// The error of stalled write-back, if only write-back could free memory.
    pub(crate) fn memory_or_wait(&self, bytes: u64, least: u64) -> Result<Option<Pages>> {
        let ticket = self.memory_ticket();
        if let Some(pages) = self.take_memory(bytes, least) {
            return Ok(Some(pages));
        }
        if let Some(error) = self.throttle.stuck_error() {
            return Err(error);
        }
        self.writeback.pressure();
        self.waits.wait_timeout(ticket);
        Ok(None)
    }

    /// Longer runs than this many bytes are not kept in the cache. `share` is a divisor of the budget.
    pub(crate) fn long_run_bytes(&self, share: u64) -> u64 {
        (self.pool.max_bytes() / share).max(LONG_RUN_BYTES)
    }

    /// Called before the pool grows for a long run: drops clean, unused folios that long runs left behind.
    /// Fresh memory from the system costs more than copying into it.
    pub(crate) fn recycle(&self, bytes: u64) {
        let free = self
            .pool
            .held_bytes()
            .saturating_sub(self.pool.used_bytes());
        if free < bytes {
            self.reclaim(bytes, true);
        }
    }

    pub(crate) fn memory_ticket(&self) -> Ticket {
        self.waits.ticket(MEMORY_KEY)
    }

    /// Called when folios became clean or memory became free: wakes threads that wait for memory.
    pub(crate) fn memory_freed(&self) {
        self.waits.wake(MEMORY_KEY);
    }

    /// Releases clean memory until the budget is met.
    pub(crate) fn shrink_to_budget(&self) {
        let over = |cache: &PageCache| {
            let used = cache.pool.used_bytes();
            used.checked_sub(cache.pool.max_bytes())
                .filter(|over| *over > 0)
        };
        while let Some(over) = over(self) {
            if self.reclaim(over, false) == 0 {
                return;
            }
        }
    }

    /// Drops clean folios (only those of long runs if `streamed_only`) until `bytes` are free or every entry
    /// was looked at. Returns the number of bytes freed.
    fn reclaim(&self, bytes: u64, streamed_only: bool) -> u64 {
        let mut freed = 0;
        // A used folio may take up to three more turns in the main queue.
        let mut turns = self.policy.len() * 5;
        while freed < bytes && turns > 0 {
            turns -= 1;
            let Some((entry, queue)) = self.policy.next(streamed_only) else {
                break;
            };
            match self.try_evict(&entry, queue) {
                Eviction::Evicted(folio) => {
                    freed += folio.len;
                    if queue == Queue::Small {
                        self.policy.evicted(entry, self.pool.max_bytes());
                    }
                }
                Eviction::Used => self.policy.keep(entry),
                Eviction::Nothing => {}
            }
        }
        freed
    }

    fn try_evict(&self, entry: &Entry, queue: Queue) -> Eviction {
        let Some(span) = self.table.get(entry.space, number_of(entry.start)) else {
            return Eviction::Nothing;
        };
        let mut state = span.state.write();
        let Some(folio) = state.with_id(entry.start, entry.id) else {
            return Eviction::Nothing;
        };
        if !folio.is_idle() {
            folio.queued = false;
            return Eviction::Nothing;
        }
        let uses = folio.uses();
        if uses > 0 {
            folio.set_uses(if queue == Queue::Main { uses - 1 } else { 0 });
            return Eviction::Used;
        }
        let folio = state.remove(entry.start);
        self.removed(&span, &mut state, &folio);
        folio.map_or(Eviction::Nothing, Eviction::Evicted)
    }

    /// Accounts for folios just removed from `span`. Removes the span from the table if it is now empty.
    pub(crate) fn removed<'f>(
        &self,
        span: &Span,
        state: &mut SpanState,
        folios: impl IntoIterator<Item = &'f Box<Folio>>,
    ) {
        let bytes = folios.into_iter().map(|folio| folio.len).sum();
        span.space.uncached(bytes);
        if state.is_empty() && !state.gone {
            state.gone = true;
            // In this order: once the span is out of the table, a new span may take its number and enter the
            // lists.
            span.space.forget_span(span.number);
            self.table.remove(span.space.id, span.number);
        }
    }

    /// Queues folios that have become idle for eviction. Called with no span locked.
    pub(crate) fn queue(&self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            self.policy.add(entry);
        }
    }

    /// Records that `folios` queued folios were dropped other than by [`PageCache::reclaim`].
    pub(crate) fn unqueued(&self, folios: usize) {
        if folios == 0 || !self.policy.gone(folios) {
            return;
        }
        self.policy.sift(|entry| {
            let is_there = |span: &Span| {
                let state = span.state.read();
                state
                    .find(entry.start)
                    .is_some_and(|folio| folio.id == entry.id)
            };
            self.table
                .look(entry.space, number_of(entry.start), is_there)
                == Some(true)
        });
    }
}
