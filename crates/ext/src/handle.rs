//! A journal handle as this crate uses it: errors in our own type, its place in the lock order checked.
//!
//! Nothing can take a change back. So an operation checks first, claims its blocks first (claims are in memory and go
//! back without a trace) and changes last: a handle that is dropped after a change without [`Handle::stop`] left an
//! operation half-done, and the volume takes no more changes. One that changed nothing may be dropped.

use throughline_extfmt::{Corrupt, FsBlock};
use throughline_journal::{Journal, Tid};

use crate::error::Result;
use crate::lock_order::{Place, Rank};

/// A running change of metadata, from `Base::begin`. A thread has at most one.
#[must_use = "a change ends with `stop`"]
pub struct Handle<'a> {
    inner: throughline_journal::Handle<'a>,
    _place: Place,
}

impl<'a> Handle<'a> {
    /// Enters the lock order, then begins.
    pub(crate) fn begin(journal: &'a Journal, credits: u32) -> Result<Self> {
        let place = Place::enter(Rank::Handle, 0);
        #[cfg(test)]
        if EACH.get() {
            journal.sync()?;
        }
        Ok(Self {
            inner: journal.begin(credits)?,
            _place: place,
        })
    }

    /// The transaction that the change is in.
    pub(crate) fn tid(&self) -> Tid {
        self.inner.tid()
    }

    /// Changes a block's bytes, read first where they are not cached. `change` must not use the journal.
    ///
    /// # Errors
    /// Those of reading the block; nothing is changed then.
    pub(crate) fn modify<R>(
        &mut self,
        block: FsBlock,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        Ok(self.inner.modify(block, change)?)
    }

    /// As [`Handle::modify`], of a block that was read with `check`: where it had to be loaded again since, that runs first.
    ///
    /// # Errors
    /// As there; `Corrupt` from the check.
    pub(crate) fn modify_checked<R>(
        &mut self,
        block: FsBlock,
        check: impl Fn(&[u8]) -> core::result::Result<(), Corrupt>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        Ok(self.inner.modify_checked(block, check, change)?)
    }

    /// Makes a block anew: `fill` sees zeroes, whatever was there, and the device is not read.
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

    /// The block is metadata no more: nothing of it reaches the disk from now on. Comes before the block is freed.
    pub(crate) fn forget(&mut self, block: FsBlock) {
        self.inner.forget(block);
    }

    /// How many blocks more this handle may touch. Whoever may need more of them than a handle can have ends with a sound
    /// volume before, and begins another.
    pub(crate) fn credits_left(&self) -> u32 {
        self.inner.credits_left()
    }

    /// Ends the change: all of it is there.
    ///
    /// # Errors
    /// Those of the journal: the change will not reach the disk.
    pub(crate) fn stop(self) -> Result<()> {
        debug_assert_eq!(
            self.inner.overrun(),
            0,
            "blocks touched beyond the credits of an operation"
        );
        Ok(self.inner.stop()?)
    }
}

#[cfg(test)]
thread_local! {
    static EACH: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// From now on, until the answer is dropped, what this thread does in a handle is committed before it begins the next: a
/// crash finds every place where an operation stops one handle and begins another.
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
