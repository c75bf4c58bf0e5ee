//! Memory for folios: from the pool, or from clean folios that are dropped for it. Nothing here writes to the device.
//!
//! Not to be called with a span locked.

use throughline_device::{MAX_PAGES_BYTES, Pages};

use crate::cache::PageCache;
use crate::cache::folio::{Folio, MIN_FOLIO_BYTES};
use crate::cache::policy::{Entry, Queue};
use crate::cache::span::{Span, SpanState, number_of};
use crate::cache::waits::Ticket;
use crate::error::{Reason, Result};
use crate::throttle::Wait;

/// A folio has at most this part of the budget, so that a small budget still holds several.
const BUDGET_SHARE: u64 = 16;

/// The largest allocation unit of a file, and so the largest folio that has to be.
const MOST_UNIT_BYTES: u64 = 64 << 10;

/// A reader brings in this part of the budget at a time, and no more than so much.
const FILL_SHARE: u64 = 8;
const MOST_FILL_BYTES: u64 = 32 << 20;

/// No run shorter than this is long, however small the budget.
const LONG_RUN_BYTES: u64 = 64 << 20;

/// Under this key wait those who need memory.
const MEMORY_KEY: u64 = u64::MAX;

/// What became of an entry whose turn it was to go.
enum Turn {
    Out(Box<Folio>),
    /// Used: it stays.
    Used,
    /// Busy, and queued again when it is not; or gone already.
    Nothing,
}

impl PageCache {
    /// The largest folio at present, in bytes; a file's allocation unit may be larger.
    pub(crate) fn most_folio_bytes(&self) -> u64 {
        let share = (self.pool.max_bytes() / BUDGET_SHARE).max(MIN_FOLIO_BYTES);
        (1 << share.ilog2()).min(MAX_PAGES_BYTES as u64)
    }

    /// What one reader brings in at a time, at most.
    pub(crate) fn most_fill_bytes(&self) -> u64 {
        (self.pool.max_bytes() / FILL_SHARE).clamp(MOST_UNIT_BYTES, MOST_FILL_BYTES)
    }

    /// Memory of `bytes`, a power of two, or of less where that is not to be had, but at least `least`. `None`: nothing is
    /// free and nothing can be dropped.
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

    /// Takes, after dropping what the budget lacks for it. Where the budget has room, but only in smaller pieces, nothing is
    /// dropped for a large one: it would take the whole cache before a piece in one comes free.
    fn take_exactly(&self, bytes: u64) -> Option<Pages> {
        loop {
            if let Some(pages) = self.pool.take(bytes as usize) {
                return Some(pages);
            }
            let after = self.pool.used_bytes().saturating_add(bytes);
            let lacking = after.saturating_sub(self.pool.max_bytes());
            if lacking == 0 && bytes > MOST_UNIT_BYTES {
                return None;
            }
            // Others may take what was dropped here.
            if self.reclaim(lacking.max(1), false) == 0 {
                return self.pool.take(bytes as usize);
            }
        }
    }

    /// As [`PageCache::take_memory`]; where there is none it waits for a moment at which there may be, and answers `None`.
    ///
    /// # Errors
    /// `WouldBlock`; why write-back does not get on, where only that could make room.
    pub(crate) fn memory_or_wait(
        &self,
        bytes: u64,
        least: u64,
        wait: Wait,
    ) -> Result<Option<Pages>> {
        let ticket = self.memory_ticket();
        if let Some(pages) = self.take_memory(bytes, least) {
            return Ok(Some(pages));
        }
        if wait == Wait::No {
            return Err(Reason::WouldBlock.into());
        }
        if let Some(error) = self.throttle.stuck_error() {
            return Err(error);
        }
        self.writeback.pressure();
        self.waits.wait_a_while(ticket);
        Ok(None)
    }

    /// A run that is longer than this is of a file too long to be kept: `share` is the part of the budget, one in so many.
    pub(crate) fn long_run_bytes(&self, share: u64) -> u64 {
        (self.pool.max_bytes() / share).max(LONG_RUN_BYTES)
    }

    /// Before the pool grows for a long run: drops what such runs left behind, as far as it is clean and was not used.
    /// Memory fresh from the system costs more than the copy into it.
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

    /// Folios became clean, or memory free.
    pub(crate) fn memory_freed(&self) {
        self.waits.wake(MEMORY_KEY);
    }

    /// Gives back what is over the budget, as far as it is clean.
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

    /// Drops clean folios, or of those only the ones of long runs, until `bytes` are free or all were looked at. How many bytes
    /// it were.
    fn reclaim(&self, bytes: u64, streamed_only: bool) -> u64 {
        let mut freed = 0;
        // Those that are used stay up to three more turns of the main queue.
        let mut turns = self.policy.len() * 5;
        while freed < bytes && turns > 0 {
            turns -= 1;
            let Some((entry, queue)) = self.policy.next(streamed_only) else {
                break;
            };
            match self.turn(&entry, queue) {
                Turn::Out(folio) => {
                    freed += folio.len;
                    if queue == Queue::Small {
                        self.policy.evicted(entry, self.pool.max_bytes());
                    }
                }
                Turn::Used => self.policy.keep(entry),
                Turn::Nothing => {}
            }
        }
        freed
    }

    fn turn(&self, entry: &Entry, queue: Queue) -> Turn {
        let Some(span) = self.table.get(entry.space, number_of(entry.start)) else {
            return Turn::Nothing;
        };
        let mut state = span.state.write();
        let Some(folio) = state.with_id(entry.start, entry.id) else {
            return Turn::Nothing;
        };
        if !folio.is_idle() {
            folio.queued = false;
            return Turn::Nothing;
        }
        let uses = folio.uses();
        if uses > 0 {
            folio.set_uses(if queue == Queue::Main { uses - 1 } else { 0 });
            return Turn::Used;
        }
        let folio = state.remove(entry.start);
        self.removed(&span, &mut state, &folio);
        folio.map_or(Turn::Nothing, Turn::Out)
    }

    /// Accounts for folios that were just taken out of `span`, and lets go of the span with the last.
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
            // In this order: once it is out of the table, another may be there under its number, and is in the lists then.
            span.space.forget_span(span.number);
            self.table.remove(span.space.id, span.number);
        }
    }

    /// Puts folios that are idle now in line to be dropped; called with no span locked.
    pub(crate) fn queue(&self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            self.policy.add(entry);
        }
    }

    /// So many queued folios were dropped otherwise than by [`PageCache::reclaim`].
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
