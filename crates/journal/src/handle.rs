//! The handle of an operation. An operation either completes or aborts the journal.
//!
//! Invariants:
//! - The changes of a handle are complete when [`Handle::stop`] returns `Ok`. A handle dropped after a change
//!   without `stop` leaves its operation half-done: the journal is aborted, nothing more is committed, and
//!   the volume is read-only until it is reopened.
//! - A handle belongs to one thread; a thread has at most one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use throughline_extfmt::{Corrupt, FsBlock};

use crate::commit::Core;
use crate::error::{Abort, Result};
use crate::parts::{Part, Sum};
use crate::tid::Tid;

/// A running operation, from [`crate::Journal::begin`].
#[must_use = "an operation ends with `stop`"]
pub struct Handle<'j> {
    core: &'j Core,
    tid: Tid,
    /// Distinct blocks that it may touch.
    credits: u32,
    /// The distinct blocks that it touched, ascending. They are few, so a sorted list is enough.
    touched: SmallVec<[FsBlock; 8]>,
    stopped: bool,
}

impl<'j> Handle<'j> {
    pub(crate) fn begin(core: &'j Core, credits: u32) -> Result<Self> {
        Ok(Self {
            tid: core.enter(credits)?,
            core,
            credits,
            touched: SmallVec::new(),
            stopped: false,
        })
    }

    /// The transaction it belongs to.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// The number of further blocks that this handle may touch.
    pub fn credits_left(&self) -> u32 {
        self.credits
            .saturating_sub(u32::try_from(self.touched.len()).unwrap_or(u32::MAX))
    }

    /// The number of blocks touched beyond the credits. A value above 0 is a bug in the layer above.
    pub fn overrun(&self) -> u32 {
        let touched = u32::try_from(self.touched.len()).unwrap_or(u32::MAX);
        touched.saturating_sub(self.credits)
    }

    /// Changes `block` through `change`, which gets the block's content. A block that is not cached is read
    /// first.
    ///
    /// `change` runs under the block's lock: it must not call the journal. Nothing is changed on an error.
    ///
    /// # Errors
    /// A device error of the read; [`crate::Error::Corrupt`] for a block that lies past the end of the
    /// device.
    pub fn modify<R>(&mut self, block: FsBlock, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let touch = self.touch(block);
        let changed = self.core.cache.modify(
            block,
            None::<fn(&[u8]) -> core::result::Result<(), Corrupt>>,
            change,
        );
        self.finish_touch(block, touch, changed)
    }

    /// As [`Handle::modify`], but `check` runs first unless the block has passed a check since it was loaded.
    ///
    /// # Errors
    /// As [`Handle::modify`]; [`crate::Error::Corrupt`] with the error of `check`.
    pub fn modify_checked<R>(
        &mut self,
        block: FsBlock,
        check: impl Fn(&[u8]) -> core::result::Result<(), Corrupt>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let touch = self.touch(block);
        let changed = self.core.cache.modify(block, Some(check), change);
        self.finish_touch(block, touch, changed)
    }

    /// Changes one part of `block`, which has a checksum of its own: `sum` computes it when the transaction
    /// is sealed, so `change` need not. `check` runs first, under the block's lock, unless the part has
    /// passed a check since it was loaded ([`Journal::read_part`](crate::Journal::read_part)) or was changed
    /// in this way.
    ///
    /// # Errors
    /// As [`Handle::modify_checked`].
    pub fn modify_part<R>(
        &mut self,
        block: FsBlock,
        sum: (Part, &Arc<dyn Sum>),
        check: impl FnOnce(&[u8]) -> core::result::Result<(), Corrupt>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let touch = self.touch(block);
        let changed = self.core.cache.modify_part(block, sum, check, change);
        self.finish_touch(block, touch, changed)
    }

    /// Replaces the content of `block`: `fill` gets zeroes, and the device is not read.
    ///
    /// `fill` runs under the block's lock: it must not call the journal.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] for a block that lies past the end of the device.
    pub fn create<R>(&mut self, block: FsBlock, fill: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let touch = self.touch(block);
        let created = self.core.cache.create(block, fill);
        self.finish_touch(block, touch, created)
    }

    /// Revokes `block`, which was freed and is no longer metadata. Its changes in this transaction are
    /// dropped, and replay will not write it once this transaction is durable. Until then, earlier
    /// transactions may still write it, so the block must not be reused before
    /// ([`crate::Journal::committed`]).
    pub fn forget(&mut self, block: FsBlock) {
        // Freeing a block counts as a change: an operation that did so and is dropped is half-done.
        if let Err(place) = self.touched.binary_search(&block) {
            self.touched.insert(place, block);
        }
        self.core.cache.discard(block);
        self.core.gate.revoke(block);
    }

    /// Ends the operation: its changes are complete.
    ///
    /// # Errors
    /// [`crate::Error::Aborted`] if the journal was aborted meanwhile: the operation will not reach the disk.
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

    /// Adds `block` to the touched blocks. Returns its index if it is new.
    fn touch(&mut self, block: FsBlock) -> Option<usize> {
        let place = self.touched.binary_search(&block).err()?;
        self.touched.insert(place, block);
        Some(place)
    }

    /// Completes a touch: on success the block is no longer revoked; on an error the touch is undone.
    fn finish_touch<R>(
        &mut self,
        block: FsBlock,
        touch: Option<usize>,
        result: Result<R>,
    ) -> Result<R> {
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
