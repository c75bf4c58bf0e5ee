//! Space for an operation ([`Data::with_room`]): where there is none, space that is about to become free is made
//! available first.
//!
//! Freed blocks and inodes wait for the commit of their transaction; files with a deferred truncation still hold
//! their blocks. The allocators know of the first only, so this is above both.

use crate::data::Data;
use crate::error::{Error, Reason, Result};
use crate::lock_order::{Place, Rank};

/// Others may take what a commit made free, and free more. After so many times it is left at that.
const TRIES: u32 = 64;

impl Data {
    /// Whether freed blocks, or inodes, wait for their transaction.
    fn is_room_awaited(&self) -> bool {
        self.balloc.blocks_awaiting() > 0
            || self.emptied.is_any()
            || self.ialloc.is_awaiting(self.journal.committed())
    }

    /// Makes the freeing of all that waits durable; whether there is more that waits.
    fn make_room(&self) -> Result<bool> {
        self.settle_emptied()?;
        let _nothing_held = Place::enter(Rank::Handle, 0);
        self.journal.commit()?;
        if self.balloc.discards() {
            self.trim_freed();
        }
        self.settle_freed();
        Ok(self.is_room_awaited())
    }

    /// Runs an operation that needs blocks. Where it finds no space while some wait for their transaction, makes that
    /// durable and runs it again: an operation that ends so has left nothing undone that would keep it from being run
    /// again. No handle is open, and no lock held behind those of files.
    ///
    /// There is no space, in the end, where none waited when the last attempt began: what it has freed itself, and what
    /// others have meanwhile, who had it then, does not count.
    ///
    /// # Errors
    /// Those of `operation`; those of the journal.
    pub(crate) fn with_room<R>(&self, mut operation: impl FnMut() -> Result<R>) -> Result<R> {
        let before = self.journal.committed();
        let mut outcome = operation();
        // What became durable after the search waits no more, and was not found.
        let is_full = |outcome: &Result<R>| matches!(outcome, Err(Error::Caller(Reason::NoSpace)));
        let mut awaited =
            is_full(&outcome) && (self.is_room_awaited() || self.journal.committed() != before);
        for _ in 0..TRIES {
            if !awaited || !is_full(&outcome) {
                break;
            }
            awaited = self.make_room()?;
            outcome = operation();
        }
        outcome
    }
}
