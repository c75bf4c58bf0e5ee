//! The handle of an operation: what it may change, and that it either ends whole or stops all changes.
//!
//! Invariants:
//! - Whatever a handle changed is complete when [`Handle::stop`] returns `Ok`. A handle dropped after a change
//!   without `stop` left an operation half-done: the journal is aborted, nothing of it is written any more, and
//!   the volume is read-only until it is opened again.
//! - A handle belongs to one thread; a thread has at most one.

use throughline_extfmt::{Corrupt, FsBlock};

use crate::Journal;
use crate::error::{Abort, Result};

/// A running operation, from [`Journal::begin`].
#[must_use = "an operation ends with `stop`"]
pub struct Handle<'j> {
    journal: &'j Journal,
    /// Distinct blocks it may touch.
    credits: u32,
    /// The blocks it touched, ascending, each once. An operation touches few, so a sorted list is enough.
    touched: Vec<FsBlock>,
    stopped: bool,
}

impl<'j> Handle<'j> {
    pub(crate) fn new(journal: &'j Journal, credits: u32) -> Self {
        Self {
            journal,
            credits,
            touched: Vec::new(),
            stopped: false,
        }
    }

    /// The journal it belongs to.
    pub fn journal(&self) -> &'j Journal {
        self.journal
    }

    /// How many blocks more this handle may touch without [`Handle::extend`].
    pub fn credits_left(&self) -> u32 {
        self.credits
            .saturating_sub(u32::try_from(self.touched.len()).unwrap_or(u32::MAX))
    }

    /// Changes `block` through `change`, which sees its content, read first if it is not cached.
    ///
    /// `change` runs under the block's lock: it must not call the journal. Nothing is changed on an error.
    ///
    /// # Errors
    /// A device error of the read; [`crate::Error::Corrupt`] for a block that lies past the end of the device.
    pub fn modify<R>(&mut self, block: FsBlock, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let touch = self.touch(block);
        let journal = self.journal;
        let changed = journal.cache.modify(
            block,
            None::<fn(&[u8]) -> core::result::Result<(), Corrupt>>,
            change,
        );
        self.settle(touch, changed)
    }

    /// [`Handle::modify`] of a block that may be unread yet: `check` runs first unless the block has passed one
    /// since it was loaded.
    ///
    /// # Errors
    /// As [`Handle::modify`]; [`crate::Error::Corrupt`] with what `check` found.
    pub fn modify_checked<R>(
        &mut self,
        block: FsBlock,
        check: impl FnOnce(&[u8]) -> core::result::Result<(), Corrupt>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let touch = self.touch(block);
        let changed = self.journal.cache.modify(block, Some(check), change);
        self.settle(touch, changed)
    }

    /// Makes `block` anew: `fill` sees zeroes, whatever was there before, and the device is not read.
    ///
    /// `fill` runs under the block's lock: it must not call the journal.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] for a block that lies past the end of the device.
    pub fn create<R>(&mut self, block: FsBlock, fill: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let touch = self.touch(block);
        let created = self.journal.cache.create(block, fill);
        self.settle(touch, created)
    }

    /// Says that `block` is metadata no more: it was freed. Its changes are dropped, and after the return nothing
    /// of it reaches the device. Waits while it is being written.
    pub fn forget(&mut self, block: FsBlock) {
        // It counts as a change: an operation that freed a block and ended half-way is half-done.
        if let Err(place) = self.touched.binary_search(&block) {
            self.touched.insert(place, block);
        }
        self.journal.cache.discard(block);
    }

    /// Asks for `credits` blocks more.
    ///
    /// # Errors
    /// [`crate::Error::Aborted`] if the journal was stopped meanwhile. A journal that is full will say so here too: the
    /// operation then has to come to a consistent end, stop, and begin again.
    pub fn extend(&mut self, credits: u32) -> Result<()> {
        self.journal.check_alive()?;
        self.credits = self.credits.saturating_add(credits);
        Ok(())
    }

    /// Ends the operation: all it changed is there, as a whole.
    ///
    /// # Errors
    /// [`crate::Error::Aborted`] if the journal was stopped meanwhile: the operation will not reach the disk.
    pub fn stop(mut self) -> Result<()> {
        self.stopped = true;
        let over = self.touched.len().saturating_sub(self.credits as usize);
        if over > 0 {
            self.journal.note_overrun(over);
        }
        self.journal.check_alive()
    }

    /// Enters `block` into the list; the place, if it was not there.
    fn touch(&mut self, block: FsBlock) -> Option<usize> {
        let place = self.touched.binary_search(&block).err()?;
        self.touched.insert(place, block);
        Some(place)
    }

    /// Takes a touch back that changed nothing.
    fn settle<R>(&mut self, touch: Option<usize>, result: Result<R>) -> Result<R> {
        if let (Err(_), Some(place)) = (&result, touch) {
            self.touched.remove(place);
        }
        result
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if !self.stopped && !self.touched.is_empty() {
            self.journal.abort(Abort::HalfDone {
                blocks: self.touched.len(),
            });
        }
    }
}
