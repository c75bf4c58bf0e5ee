//! The jobs of the readahead threads: reading claimed blocks, or claiming and reading a range step by step.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::workers::Job;
use crate::cache::{Backing, Filling, Running, read_in};

/// Bytes queued or being read ahead.
#[derive(Debug, Default)]
pub(crate) struct InFlight(AtomicU64);

impl InFlight {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds `bytes` until the returned share is dropped.
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

/// A job for the readahead threads. On error the data is dropped; a reader that needs it reads it again.
pub(crate) enum FillJob {
    /// Blocks that are already claimed in the cache.
    Taken(Taken),
    /// A range of which nothing is claimed yet.
    Wanted(Wanted),
}

/// Fields drop in this order: unread claims are given up before the file may be frozen or dropped.
pub(crate) struct Taken {
    fillings: Vec<Filling>,
    _share: Share,
    _running: Running,
    host: Arc<dyn Backing>,
}

/// A range to read step by step.
pub(crate) struct Wanted {
    host: Arc<dyn Backing>,
    range: Range<u64>,
    step_bytes: u64,
}

impl FillJob {
    /// `None` while the file is frozen; the claims are then given up.
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

    /// `range` must not be empty.
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
                // On error the claims are given up; a reader that needs the data gets the error itself.
                let _ = read_in(&*taken.host, std::mem::take(&mut taken.fillings));
                None
            }
            FillJob::Wanted(wanted) => wanted.step().map(FillJob::Wanted),
        }
    }
}

impl Wanted {
    /// Reads the next step. Returns the rest, unless an error or lack of memory makes it pointless.
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
