//! A journal handle as this crate uses it: with this crate's errors, and its place in the lock order checked.
//!
//! A change cannot be rolled back. So an operation does all checks first, then claims its blocks (claims are
//! in memory and are released without a trace), and changes metadata last. A handle dropped after a change
//! without [`Handle::stop`] means a half-done operation: the volume refuses further changes. A handle that
//! changed nothing may be dropped.

use std::sync::Arc;

use throughline_extfmt::{Corrupt, FsBlock};
use throughline_journal::{Journal, Part, Sum, Tid};
use throughline_locks::{Place, Rank};

use crate::error::Result;

/// A metadata change in progress, from `Base::begin`. A thread has at most one.
#[must_use = "a change must be ended with `stop`"]
pub struct Handle<'a> {
    inner: throughline_journal::Handle<'a>,
    /// Credits left for what [`Handle::modify_beside`] changes.
    beside: u32,
    _place: Place,
}

impl<'a> Handle<'a> {
    /// Enters the lock order, then begins. `beside`: credits for [`Handle::modify_beside`], in addition.
    pub(crate) fn begin(journal: &'a Journal, credits: u32, beside: u32) -> Result<Self> {
        let place = Place::enter(Rank::Handle, 0);
        #[cfg(test)]
        if EACH.get() {
            journal.sync()?;
        }
        Ok(Self {
            inner: journal.begin(credits.saturating_add(beside))?,
            beside,
            _place: place,
        })
    }

    /// The transaction that contains the change.
    pub(crate) fn tid(&self) -> Tid {
        self.inner.tid()
    }

    /// Changes a block's bytes; reads the block first if it is not cached. `change` must not use the journal.
    ///
    /// # Errors
    /// Errors of reading the block; nothing has changed then.
    pub(crate) fn modify<R>(
        &mut self,
        block: FsBlock,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        Ok(self.inner.modify(block, change)?)
    }

    /// As [`Handle::modify`], for a block that was read with `check`: if it must be loaded again, `check`
    /// runs first.
    ///
    /// # Errors
    /// As [`Handle::modify`]; `Corrupt` from the check.
    pub(crate) fn modify_checked<R>(
        &mut self,
        block: FsBlock,
        check: impl Fn(&[u8]) -> core::result::Result<(), Corrupt>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        Ok(self.inner.modify_checked(block, check, change)?)
    }

    /// Changes one part of a block; `sum` computes its checksum when the transaction is sealed. `check` runs
    /// first if the part has not passed it since the block was loaded. `change` must not use the journal.
    ///
    /// # Errors
    /// As [`Handle::modify_checked`].
    pub(crate) fn modify_part<R>(
        &mut self,
        block: FsBlock,
        sum: (Part, &Arc<dyn Sum>),
        check: impl FnOnce(&[u8]) -> core::result::Result<(), Corrupt>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        Ok(self.inner.modify_part(block, sum, check, change)?)
    }

    /// Initializes a block: `fill` gets zeros whatever the block contained, and the device is not read.
    ///
    /// # Errors
    /// `Corrupt` for a block past the end of the device.
    pub(crate) fn create<R>(
        &mut self,
        block: FsBlock,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        Ok(self.inner.create(block, fill)?)
    }

    /// The block is no longer metadata: from now on, nothing of it is written to disk. Must be called before
    /// the block is freed.
    pub(crate) fn forget(&mut self, block: FsBlock) {
        self.inner.forget(block);
    }

    /// As [`Handle::modify`], for a block that the operation knows nothing of: it uses credits of its own.
    ///
    /// # Errors
    /// As [`Handle::modify`].
    pub(crate) fn modify_beside<R>(
        &mut self,
        block: FsBlock,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let before = self.inner.credits_left();
        let result = self.inner.modify(block, change)?;
        let used = before.saturating_sub(self.inner.credits_left());
        self.beside = self.beside.saturating_sub(used);
        Ok(result)
    }

    /// Credits left in this handle. An operation that may need more than one handle can have must stop first,
    /// with a sound volume, and begin another.
    pub(crate) fn credits_left(&self) -> u32 {
        self.inner.credits_left().saturating_sub(self.beside)
    }

    /// Ends the change, which is complete.
    ///
    /// # Errors
    /// Errors of the journal: the change will not reach the disk.
    pub(crate) fn stop(self) -> Result<()> {
        debug_assert_eq!(
            self.inner.overrun(),
            0,
            "an operation changed more blocks than it has credits"
        );
        Ok(self.inner.stop()?)
    }
}

#[cfg(test)]
thread_local! {
    static EACH: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Until the returned guard is dropped, commits each handle of this thread before the next one begins: a
/// crash test then covers every point where an operation stops one handle and begins another.
#[cfg(test)]
pub(crate) fn commit_each_handle() -> impl Drop {
    struct Ended;
    impl Drop for Ended {
        fn drop(&mut self) {
            EACH.set(false);
        }
    }
    EACH.set(true);
    Ended
}
