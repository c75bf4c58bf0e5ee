//! A journal handle as this crate uses it: errors in our own type, its place in the lock order checked.

use throughline_extfmt::FsBlock;

use crate::error::Result;
use crate::lock_order::{Place, Rank};

/// An open transaction handle. Every change of metadata goes through one; [`Handle::stop`] ends it.
///
/// A handle that is dropped without `stop` ends as well: changes made through it stay, as nothing can take them back, so
/// an operation checks first and changes last.
pub struct Handle<'a> {
    inner: throughline_journal::Handle<'a>,
    _place: Place,
}

impl<'a> Handle<'a> {
    /// Enters the order, then begins.
    pub(crate) fn begin(journal: &'a throughline_journal::Journal, credits: u32) -> Result<Self> {
        let place = Place::enter(Rank::Handle, 0);
        Ok(Self { inner: journal.begin(credits)?, _place: place })
    }

    /// Changes a block's bytes in this transaction.
    ///
    /// # Errors
    /// Those of reading the block and of the journal.
    pub(crate) fn modify<R>(&mut self, block: FsBlock, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        Ok(self.inner.modify(block, change)?)
    }

    /// Gives a fresh block, zeroed, without reading it, and fills it in this transaction.
    ///
    /// # Errors
    /// Those of the journal.
    pub(crate) fn create<R>(&mut self, block: FsBlock, fill: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        Ok(self.inner.create(block, fill)?)
    }

    /// The block is metadata no more: it must not be written home, nor replayed. Call it before the block is freed.
    ///
    /// # Errors
    /// Those of the journal.
    pub(crate) fn forget(&mut self, block: FsBlock) -> Result<()> {
        Ok(self.inner.forget(block)?)
    }

    /// Asks for more credits.
    ///
    /// # Errors
    /// Those of the journal; the handle stays usable with what it has.
    pub(crate) fn extend(&mut self, credits: u32) -> Result<()> {
        Ok(self.inner.extend(credits)?)
    }

    /// Ends the handle.
    ///
    /// # Errors
    /// Those of the journal.
    pub(crate) fn stop(self) -> Result<()> {
        Ok(self.inner.stop()?)
    }
}
