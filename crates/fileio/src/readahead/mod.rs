//! Readahead: on-demand windows, filled by threads of their own.
//!
//! ```text
//!  read ── miss ─► missed() ─► what the reader reads itself          window.rs: which bytes
//!    │                 └─ ahead: placeholders, now ─► inbox ─► fill   stream.rs: one open file's state
//!    └─ mark ─► met_mark() ─ ahead: placeholders, now ─► inbox ─► fill   workers.rs: the threads
//! ```
//!
//! Invariants:
//! - A hint, everywhere: where there is no memory, no room in the inbox, or the file is frozen, less is read ahead, or nothing. Nothing
//!   here waits for memory or for the device, but the threads for what they read. An error is dropped: who needs the
//!   bytes reads them again and meets it.
//! - Placeholders are in the cache before the call returns that sent for them: a reader that comes to them waits for that folio
//!   alone, and none is read twice.
//! - At most a quarter of the budget is on its way at any time.

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

/// The least that a window may grow to, in bytes, where the budget allows it.
const LEAST_MAX_BYTES: u64 = 128 << 10;
/// The most that a derived window may grow to, in bytes.
const MOST_MAX_BYTES: u64 = 16 << 20;
/// Bios of target size in a window: as many as keep a device busy while the next window is asked for.
const WINDOW_BIOS: u32 = 16;
/// No stream reads further ahead than this part of the budget,
const BUDGET_PART: u64 = 8;
/// and all together no further than this.
const IN_FLIGHT_PART: u64 = 4;
/// Bios of target size in one job: the first bytes of a window are there before the last ones are asked for.
const JOB_BIOS: u32 = 4;
/// So many windows that are there already a stream goes past at once.
const WINDOWS_SKIPPED: usize = 4;
/// `None` as a stored maximum.
const DERIVED: u64 = u64::MAX;

/// Those who read ahead of one cache's readers.
pub struct Readahead {
    disk: Arc<Disk>,
    pool: PagePool,
    chosen_max_bytes: AtomicU64,
    in_flight: Arc<InFlight>,
    workers: Workers<FillJob>,
    windows: AtomicU64,
    refused: AtomicU64,
}

/// What was read ahead since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadaheadCounts {
    /// Windows that were sent for.
    pub windows: u64,
    /// Requests that were dropped, in whole or in part: the inbox full, a file frozen, too much on its way.
    pub refused: u64,
    /// Bytes on their way now.
    pub in_flight_bytes: u64,
}

impl Readahead {
    /// For a cache over `disk` whose folios come from `pool`. Threads start when they are needed.
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

    /// What was read ahead so far.
    pub fn counts(&self) -> ReadaheadCounts {
        ReadaheadCounts {
            windows: self.windows.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            in_flight_bytes: self.in_flight.bytes(),
        }
    }

    /// How far a stream reads ahead at most, in bytes: what was chosen, else what follows from the device; an eighth of the
    /// budget at the most.
    pub fn max_bytes(&self) -> u64 {
        let wanted = match self.chosen_max_bytes.load(Ordering::Relaxed) {
            DERIVED => self.derived_max_bytes(),
            chosen => chosen,
        };
        wanted.min(self.pool.max_bytes() / BUDGET_PART)
    }

    /// Chooses how far a stream reads ahead at most; 0: nothing is read ahead; `None`: what follows from the device.
    pub fn set_max_bytes(&self, bytes: Option<u64>) {
        self.chosen_max_bytes
            .store(bytes.unwrap_or(DERIVED), Ordering::Relaxed);
    }

    /// A window takes the device a few times its latency: so many bios of the size that it likes, or as many as it works on at once.
    fn derived_max_bytes(&self) -> u64 {
        let bios = self.disk.limits().queue_depth.clamp(1, WINDOW_BIOS);
        let bytes = u64::from(self.disk.bio_target_bytes().max(1)) * u64::from(bios);
        (1_u64 << bytes.ilog2()).clamp(LEAST_MAX_BYTES, MOST_MAX_BYTES)
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

    /// A read of `len` bytes at `offset` missed at byte `missed`. Says how many bytes from there on the reader should read itself, now (at
    /// least a block; perhaps more than it was asked for, in whole blocks, not past the file's last one), and sends for the
    /// rest of the window. The file's lock is held shared.
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
        // The lock is held until the placeholders are there: another thread of the handle that misses now should find them.
        let mut windows = stream.windows();
        let plan = windows.missed(read, missed, &rules);
        if !plan.ahead.is_empty() {
            self.send(host, &mut windows, plan.ahead, &rules);
        }
        plan.own.end - missed
    }

    /// A read met the mark in the folio at `at`: the next window is sent for. The file's lock is held shared.
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

    /// The range will be read: as much of it as half of the budget holds.
    pub(crate) fn will_need(&self, host: &Arc<dyn Backing>, range: Range<u64>) {
        let most = self.pool.max_bytes() / 2;
        let end = range.end.min(host.space().size());
        let end = end.min(range.start.saturating_add(most));
        if range.start < end {
            let step = self.max_bytes().max(LEAST_MAX_BYTES);
            let job = FillJob::wanted(host, range.start..end, step);
            if self.workers.send(job).is_err() {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Ends the threads; what was sent for is dropped.
    pub(crate) fn close(&self) {
        self.workers.close();
    }

    /// Sends for a window. Where all of it is there already, for the next one: a stream goes on behind what is cached.
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

    /// Puts what was taken on before the threads, in jobs that end soon one after the other. Where the first that was refused begins.
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
    /// Those who read ahead of this cache's readers.
    pub fn readahead(&self) -> &Readahead {
        &self.readahead
    }
}

#[cfg(test)]
mod tests;
