//! What the threads do: read what was taken on, or take on and read a range bit by bit.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::workers::Job;
use crate::cache::{Backing, Filling, Running, read_in};

/// Bytes that are sent for and not there yet.
#[derive(Debug, Default)]
pub(crate) struct InFlight(AtomicU64);

impl InFlight {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts `bytes` until the share is dropped.
    fn add(self: &Arc<InFlight>, bytes: u64) -> Share {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Share {
            in_flight: Arc::clone(self),
            bytes,
        }
    }
}

struct Share {
    in_flight: Arc<InFlight>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.in_flight.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A job of the threads that read ahead. Errors are dropped with what was to be read: who needs it reads it again.
pub(crate) enum FillJob {
    /// Placeholders are in the cache already.
    Taken(Taken),
    /// Nothing is done about it yet.
    Wanted(Wanted),
}

/// Dropped in this order: what is not read is given up before the file may be frozen, or may go.
pub(crate) struct Taken {
    fillings: Vec<Filling>,
    _share: Share,
    _running: Running,
    host: Arc<dyn Backing>,
}

/// A range that is to be read step by step.
pub(crate) struct Wanted {
    host: Arc<dyn Backing>,
    range: Range<u64>,
    step_bytes: u64,
}

impl FillJob {
    /// `None` while the file is frozen: what was taken on is given up.
    pub(crate) fn taken(
        host: &Arc<dyn Backing>,
        fillings: Vec<Filling>,
        in_flight: &Arc<InFlight>,
    ) -> Option<FillJob> {
        let running = host.space().begin_background()?;
        let bytes = fillings
            .iter()
            .map(|filling| filling.range().end - filling.range().start);
        Some(FillJob::Taken(Taken {
            _share: in_flight.add(bytes.sum()),
            fillings,
            _running: running,
            host: Arc::clone(host),
        }))
    }

    /// Not an empty range.
    pub(crate) fn wanted(host: &Arc<dyn Backing>, range: Range<u64>, step_bytes: u64) -> FillJob {
        FillJob::Wanted(Wanted {
            host: Arc::clone(host),
            range,
            step_bytes: step_bytes.max(1),
        })
    }
}

impl Job for FillJob {
    fn run(self) -> Option<FillJob> {
        match self {
            FillJob::Taken(mut taken) => {
                // Given up where it fails; the reader meets the error itself.
                let _ = read_in(&*taken.host, std::mem::take(&mut taken.fillings));
                None
            }
            FillJob::Wanted(wanted) => wanted.step().map(FillJob::Wanted),
        }
    }
}

impl Wanted {
    /// Reads the next step; the rest, unless the hint has turned out to be in vain.
    fn step(mut self) -> Option<Wanted> {
        let _running = self.host.space().begin_background()?;
        let end = self
            .range
            .start
            .saturating_add(self.step_bytes)
            .min(self.range.end);
        let (fillings, until) = self.host.space().begin_fill(self.range.start..end, false);
        read_in(&*self.host, fillings).ok()?;
        self.range.start = end;
        let has_memory = until >= end.min(self.host.space().size());
        (has_memory && !self.range.is_empty()).then_some(self)
    }
}
