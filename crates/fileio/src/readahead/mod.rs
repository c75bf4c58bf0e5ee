//! Readahead: on-demand windows, filled by dedicated threads.
//!
//! ```text
//!  read ── miss ─► missed() ─► what the reader reads itself          window.rs: window sizes
//!    │                 └─ ahead: placeholders, now ─► inbox ─► fill   stream.rs: one open file's state
//!    └─ mark ─► met_mark() ─ ahead: placeholders, now ─► inbox ─► fill   workers.rs: the threads
//! ```
//!
//! Invariants:
//! - Readahead is only a hint: if memory is short, the inbox is full or the file is frozen, less or nothing
//!   is read ahead. Nothing here waits for memory or the device, except the readahead threads for their
//!   reads. Errors are dropped: a reader that needs the bytes reads them again and gets the error.
//! - Blocks are claimed in the cache before the call that queued them returns: a reader that reaches one
//!   waits for that folio only, and no block is read twice.
//! - At most a quarter of the budget is in flight at any time.

mod advice;
mod fill;
mod inbox;
mod stream;
mod window;
mod workers;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_block::Disk;
use throughline_device::PagePool;

use crate::cache::{Backing, Filling, PageCache};

use fill::{FillJob, InFlight};
use stream::Pattern;
use window::{Rules, Windows};
use workers::Workers;

pub use advice::{Advice, advise};
pub use stream::ReadStream;

/// Lower bound of the derived maximum window in bytes, if the budget allows it.
const MIN_MAX_WINDOW_BYTES: u64 = 128 << 10;
/// Upper bound of the derived maximum window in bytes.
const MAX_WINDOW_BYTES: u64 = 16 << 20;
/// Maximum number of bios of target size in a window: enough to keep a device busy until the next window is
/// queued.
const WINDOW_BIOS: u32 = 16;
/// Divisor of the budget: the maximum window of one stream.
const BUDGET_PART: u64 = 8;
/// Divisor of the budget: the maximum in flight for all streams.
const IN_FLIGHT_PART: u64 = 4;
/// Bios of target size per job: the first bytes of a window should arrive before the last ones are requested.
const JOB_BIOS: u32 = 4;
/// Maximum number of fully cached windows that a stream skips at once.
const WINDOWS_SKIPPED: usize = 4;
/// The stored value for a maximum of `None`.
const DERIVED: u64 = u64::MAX;

/// Readahead of one cache.
pub struct Readahead {
    disk: Arc<Disk>,
    pool: PagePool,
    chosen_max_bytes: AtomicU64,
    in_flight: Arc<InFlight>,
    workers: Workers<FillJob>,
    windows: AtomicU64,
    refused: AtomicU64,
}

/// Counters of readahead since the cache was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadaheadCounts {
    /// Windows queued.
    pub windows: u64,
    /// Requests dropped in whole or in part: inbox full, file frozen, or too much in flight.
    pub refused: u64,
    /// Bytes in flight now.
    pub in_flight_bytes: u64,
}

impl Readahead {
    /// For a cache over `disk` with folios from `pool`. Threads start on first use.
    pub(crate) fn new(disk: Arc<Disk>, pool: PagePool) -> Readahead {
        Readahead {
            disk,
            pool,
            chosen_max_bytes: AtomicU64::new(DERIVED),
            in_flight: Arc::default(),
            workers: Workers::new(),
            windows: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// The counters so far.
    pub fn counts(&self) -> ReadaheadCounts {
        ReadaheadCounts {
            windows: self.windows.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            in_flight_bytes: self.in_flight.bytes(),
        }
    }

    /// Maximum readahead window of a stream, in bytes: the configured value, else derived from the device; at
    /// most an eighth of the budget.
    pub fn max_bytes(&self) -> u64 {
        let wanted = match self.chosen_max_bytes.load(Ordering::Relaxed) {
            DERIVED => self.derived_max_bytes(),
            chosen => chosen,
        };
        wanted.min(self.pool.max_bytes() / BUDGET_PART)
    }

    /// Sets the maximum readahead window in bytes; 0: no readahead; `None`: derived from the device.
    pub fn set_max_bytes(&self, bytes: Option<u64>) {
        self.chosen_max_bytes
            .store(bytes.unwrap_or(DERIVED), Ordering::Relaxed);
    }

    /// A window should take the device a few times its latency: `queue_depth` bios of target size, at most
    /// `WINDOW_BIOS`.
    fn derived_max_bytes(&self) -> u64 {
        let bios = self.disk.limits().queue_depth.clamp(1, WINDOW_BIOS);
        let bytes = u64::from(self.disk.bio_target_bytes().max(1)) * u64::from(bios);
        (1_u64 << bytes.ilog2()).clamp(MIN_MAX_WINDOW_BYTES, MAX_WINDOW_BYTES)
    }

    fn rules(&self, host: &dyn Backing, pattern: Pattern) -> Rules {
        let max = match pattern {
            Pattern::Normal | Pattern::Once => self.max_bytes(),
            Pattern::Sequential => {
                let most = self.pool.max_bytes() / BUDGET_PART;
                self.max_bytes().saturating_mul(2).min(most)
            }
            Pattern::Random => 0,
        };
        Rules {
            block_bytes: u64::from(host.space().block_bytes()),
            max_bytes: max,
            own_bytes: u64::from(self.disk.bio_target_bytes() / 2),
            size_bytes: host.space().size(),
        }
    }

    /// Handles a read of `len` bytes at `offset` that missed at byte `missed`: queues the rest of the window,
    /// and returns how many bytes from `missed` on the reader should read itself now (at least one block;
    /// possibly more than requested, in whole blocks, not past the file's last block). The caller holds the
    /// file's lock shared.
    pub(crate) fn missed(
        &self,
        host: &Arc<dyn Backing>,
        stream: &ReadStream,
        offset: u64,
        len: u64,
        missed: u64,
    ) -> u64 {
        let rules = self.rules(&**host, stream.pattern());
        let read = offset..offset.saturating_add(len);
        if rules.max_bytes < rules.block_bytes {
            return rules.exact(&read, missed).end - missed;
        }
        // Keep the lock until the blocks are claimed, so that another thread of this handle that misses now
        // finds them.
        let mut windows = stream.windows();
        let plan = windows.missed(read, missed, &rules);
        if !plan.ahead.is_empty() {
            self.send(host, &mut windows, plan.ahead, &rules);
        }
        plan.own.end - missed
    }

    /// Handles a read that met the mark in the folio at `at`: queues the next window. The caller holds the
    /// file's lock shared.
    pub(crate) fn met_mark(&self, host: &Arc<dyn Backing>, stream: &ReadStream, at: u64) {
        let pattern = stream.pattern();
        let rules = self.rules(&**host, pattern);
        if rules.max_bytes < rules.block_bytes {
            return;
        }
        let mut windows = stream.windows();
        let ahead = windows.marked(at, &rules);
        if !ahead.is_empty() {
            self.send(host, &mut windows, ahead, &rules);
        }
        drop(windows);
        if pattern == Pattern::Once {
            let behind = rules.max_bytes.saturating_mul(2);
            host.space().drop_clean(at.saturating_sub(behind)..at);
        }
    }

    /// Starts reading the range in the background, up to half of the budget.
    pub(crate) fn will_need(&self, host: &Arc<dyn Backing>, range: Range<u64>) {
        let most = self.pool.max_bytes() / 2;
        let end = range.end.min(host.space().size());
        let end = end.min(range.start.saturating_add(most));
        if range.start < end {
            let step = self.max_bytes().max(MIN_MAX_WINDOW_BYTES);
            let job = FillJob::wanted(host, range.start..end, step);
            if self.workers.send(job).is_err() {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Ends the threads and drops queued jobs.
    pub(crate) fn close(&self) {
        self.workers.close();
    }

    /// Queues a window. If all of it is cached already, continues with the next: the stream goes on past what
    /// is cached.
    fn send(
        &self,
        host: &Arc<dyn Backing>,
        windows: &mut Windows,
        ahead: Range<u64>,
        rules: &Rules,
    ) {
        let mut ahead = ahead;
        for _ in 0..WINDOWS_SKIPPED {
            let (fillings, until) = host.space().begin_fill(ahead.clone(), true);
            if !fillings.is_empty() {
                self.windows.fetch_add(1, Ordering::Relaxed);
                let sent = self.hand_out(host, fillings);
                return windows.reached(sent.map_or(until, |short| short.min(until)));
            }
            windows.reached(until);
            if until < ahead.end {
                return;
            }
            ahead = windows.marked(ahead.end - 1, rules);
            if ahead.is_empty() {
                return;
            }
        }
    }

    /// Queues claimed blocks as jobs of limited size, one after another. Returns the start of the first that
    /// was refused.
    fn hand_out(&self, host: &Arc<dyn Backing>, fillings: Vec<Filling>) -> Option<u64> {
        let job_bytes = u64::from(self.disk.bio_target_bytes()) * u64::from(JOB_BIOS);
        let most_in_flight = self.pool.max_bytes() / IN_FLIGHT_PART;
        let mut rest = fillings.into_iter().peekable();
        while let Some(first) = rest.next() {
            let start = first.range().start;
            let mut job = vec![first];
            while let Some(next) = rest.next_if(|next| next.range().end - start <= job_bytes) {
                job.push(next);
            }
            let room = self.in_flight.bytes() < most_in_flight;
            let job = room
                .then(|| FillJob::taken(host, job, &self.in_flight))
                .flatten();
            if job.is_none_or(|job| self.workers.send(job).is_err()) {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Some(start);
            }
        }
        None
    }
}

impl PageCache {
    /// The cache's readahead.
    pub fn readahead(&self) -> &Readahead {
        &self.readahead
    }
}

#[cfg(test)]
mod tests;
