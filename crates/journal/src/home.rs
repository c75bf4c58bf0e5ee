//! Writing metadata home: the no-journal mode, where a change is done in the cache and the block itself is its
//! only copy.
//!
//! Invariants:
//! - One writer at a time, so a block is never on its way to the device twice.
//! - Blocks go out in ascending order through the plug, as snapshots: work on them goes on meanwhile.
//! - A block whose write failed is dirty again, and the failure is returned to the caller, who latches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use throughline_block::Result;

use crate::buffer::{Block, Buffer};
use crate::cache::Cache;

/// The writer of dirty metadata.
#[derive(Default)]
pub(crate) struct Home {
    writer: Mutex<Rounds>,
    /// Rounds of [`Home::sync`] begun.
    begun: AtomicU64,
}

#[derive(Default)]
struct Rounds {
    /// The last round of [`Home::sync`] that succeeded.
    done: u64,
}

/// Buffers on their way; those not confirmed when it goes are dirty again, panics included.
struct InFlight<'a> {
    cache: &'a Cache,
    buffers: Vec<Arc<Buffer>>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.buffers
            .drain(..)
            .for_each(|buffer| self.cache.end_write(&buffer, false));
    }
}

impl Home {
    /// Writes every block that was dirty at the call, then flushes the device, so that all of it is durable, and
    /// whatever else had been written to the device before. Callers that come while one round runs share the next.
    pub(crate) fn sync(&self, cache: &Cache) -> Result<()> {
        let seen = self.begun.load(Ordering::Acquire);
        let mut rounds = self.writer.lock();
        if rounds.done > seen {
            return Ok(()); // a round that began after this call has done it
        }
        let round = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        write_dirty(cache)?;
        cache.disk().flush()?;
        rounds.done = round;
        Ok(())
    }

    /// Writes the dirty blocks without a flush, to make room. Returns at once if somebody else is at it and
    /// `wait` is false.
    pub(crate) fn write_back(&self, cache: &Cache, wait: bool) -> Result<()> {
        let guard = if wait {
            Some(self.writer.lock())
        } else {
            self.writer.try_lock()
        };
        match guard {
            Some(_writer) => write_dirty(cache),
            None => Ok(()),
        }
    }
}

fn write_dirty(cache: &Cache) -> Result<()> {
    let mut flight = InFlight {
        cache,
        buffers: Vec::new(),
    };
    let mut snapshots: Vec<(u64, Block)> = Vec::new();
    for buffer in cache.take_dirty() {
        if let Some(snapshot) = cache.start_write(&buffer) {
            snapshots.push((cache.offset_of_resident(buffer.block), snapshot));
            flight.buffers.push(buffer);
        }
    }
    if snapshots.is_empty() {
        return Ok(());
    }
    let pieces: Vec<(u64, &[u8])> = snapshots
        .iter()
        .map(|(offset, bytes)| (*offset, &bytes[..]))
        .collect();
    cache.disk().write_batch(&pieces)?;
    flight
        .buffers
        .drain(..)
        .for_each(|buffer| cache.end_write(&buffer, true));
    cache.evict();
    Ok(())
}
