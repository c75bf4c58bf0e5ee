//! The handle of an operation: what it may change, and that it either ends whole or stops all changes.
//!
//! Invariants:
//! - Whatever a handle changed is complete when [`Handle::stop`] returns `Ok`. A handle dropped after a change
//!   without `stop` left an operation half-done: the journal is aborted, nothing of it is written any more, and
//!   the volume is read-only until it is opened again.
//! - A handle belongs to one thread; a thread has at most one.

use std::sync::atomic::Ordering;

use throughline_extfmt::{Corrupt, FsBlock};

use crate::commit::Core;
use crate::error::{Abort, Result};
use crate::tid::Tid;

/// A running operation, from [`crate::Journal::begin`].
#[must_use = "an operation ends with `stop`"]
pub struct Handle<'j> {
    core: &'j Core,
    tid: Tid,
    /// Distinct blocks it may touch.
    credits: u32,
    /// The blocks it touched, ascending, each once. An operation touches few, so a sorted list is enough.
    touched: Vec<FsBlock>,
    stopped: bool,
}

impl<'j> Handle<'j> {
    pub(crate) fn begin(core: &'j Core, credits: u32) -> Result<Self> {
        Ok(Self {
            tid: core.enter(credits)?,
            core,
            credits,
            touched: Vec::new(),
            stopped: false,
        })
    }

    /// The transaction it belongs to.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// How many blocks more this handle may touch.
    pub fn credits_left(&self) -> u32 {
        self.credits
            .saturating_sub(u32::try_from(self.touched.len()).unwrap_or(u32::MAX))
    }

    /// Blocks it touched beyond its credits: more than 0 is a bug of the layer above.
    pub fn overrun(&self) -> u32 {
        let touched = u32::try_from(self.touched.len()).unwrap_or(u32::MAX);
        touched.saturating_sub(self.credits)
    }

    /// Changes `block` through `change`, which sees its content, read first if it is not cached.
    ///
    /// `change` runs under the block's lock: it must not call the journal. Nothing is changed on an error.
    ///
    /// # Errors
    /// A device error of the read; [`crate::Error::Corrupt`] for a block that lies past the end of the device.
    pub fn modify<R>(&mut self, block: FsBlock, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let touch = self.touch(block);
        let changed = self.core.cache.modify(
            block,
            None::<fn(&[u8]) -> core::result::Result<(), Corrupt>>,
            change,
        );
        self.settle(block, touch, changed)
    }

    /// [`Handle::modify`] of a block that may be unread yet: `check` runs first unless the block has passed one
    /// since it was loaded.
    ///
    /// # Errors
    /// As [`Handle::modify`]; [`crate::Error::Corrupt`] with what `check` found.
    pub fn modify_checked<R>(
        &mut self,
        block: FsBlock,
        check: impl Fn(&[u8]) -> core::result::Result<(), Corrupt>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let touch = self.touch(block);
        let changed = self.core.cache.modify(block, Some(check), change);
        self.settle(block, touch, changed)
    }

    /// Makes `block` anew: `fill` sees zeroes, whatever was there before, and the device is not read.
    ///
    /// `fill` runs under the block's lock: it must not call the journal.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] for a block that lies past the end of the device.
    pub fn create<R>(&mut self, block: FsBlock, fill: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let touch = self.touch(block);
        let created = self.core.cache.create(block, fill);
        self.settle(block, touch, created)
    }

    /// Says that `block` is metadata no more: it was freed. Its changes in this transaction are dropped, and a replay
    /// of the log leaves it alone from this transaction on. Transactions before this one may still write it, until this
    /// one is durable: the block must not be used again before ([`crate::Journal::committed`]).
    pub fn forget(&mut self, block: FsBlock) {
        // It counts as a change: an operation that freed a block and ended half-way is half-done.
        if let Err(place) = self.touched.binary_search(&block) {
            self.touched.insert(place, block);
        }
        self.core.cache.discard(block);
        self.core.gate.revoke(block);
    }

    /// Ends the operation: all it changed is there, as a whole.
    ///
    /// # Errors
    /// [`crate::Error::Aborted`] if the journal was stopped meanwhile: the operation will not reach the disk.
    pub fn stop(mut self) -> Result<()> {
        self.stopped = true;
        let over = self.overrun();
        if over > 0 {
            self.core
                .credit_overruns
                .fetch_add(over.into(), Ordering::Relaxed);
        }
        self.core.check_alive()
    }

    /// Enters `block` into the list; the place, if it was not there.
    fn touch(&mut self, block: FsBlock) -> Option<usize> {
        let place = self.touched.binary_search(&block).err()?;
        self.touched.insert(place, block);
        Some(place)
    }

    /// Takes a touch back that changed nothing.
    fn settle<R>(&mut self, block: FsBlock, touch: Option<usize>, result: Result<R>) -> Result<R> {
        match (&result, touch) {
            (Ok(_), _) => self.core.gate.unrevoke(block),
            (Err(_), Some(place)) => drop(self.touched.remove(place)),
            (Err(_), None) => {}
        }
        result
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        let changed = !self.touched.is_empty();
        if !self.stopped && changed {
            self.core.abort(Abort::HalfDone {
                blocks: self.touched.len(),
            });
        }
        if self.core.gate.leave(self.credits, changed) {
            self.core.signals.began();
        }
    }
}
