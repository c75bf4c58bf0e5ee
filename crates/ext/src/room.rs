//! Space for an operation ([`Data::with_room`]): if there is none, space that is about to become free is made
//! available first.
//!
//! Freed blocks and inodes become available when their transaction commits; files with a deferred
//! truncation still hold their blocks. The allocators see only the former, so this is a layer above both.

use throughline_locks::{Place, Rank};

use crate::data::Data;
use crate::error::{Error, Reason, Result};

/// Limit on retries: other threads may take the space that a commit freed, and free more.
const TRIES: u32 = 64;

impl Data {
    /// Whether freed blocks or inodes are waiting for their commit.
    fn is_room_awaited(&self) -> bool {
        self.balloc.blocks_awaiting() > 0
            || self.emptied.is_any()
            || self.ialloc.is_awaiting(self.journal.committed())
    }

    /// Makes all pending frees durable; returns whether more are pending.
    fn make_room(&self) -> Result<bool> {
        self.carry_out_truncations()?;
        let _nothing_held = Place::enter(Rank::Handle, 0);
        self.journal.commit()?;
        if self.balloc.discards() {
            self.trim_freed();
        }
        self.release_durable();
        Ok(self.is_room_awaited())
    }

    /// Runs an operation that needs blocks. If it finds no space while freed blocks await their commit,
    /// commits them and runs it again; so an operation that fails with `NoSpace` must be repeatable. No
    /// handle may be open, and no lock beyond the file locks held.
    ///
    /// The final result is `NoSpace` if nothing was pending when the last attempt began. Space that the
    /// attempt itself freed, or that other threads freed meanwhile, does not count.
    ///
    /// # Errors
    /// Those of `operation`; journal errors.
    pub(crate) fn with_room<R>(&self, mut operation: impl FnMut() -> Result<R>) -> Result<R> {
        let before = self.journal.committed();
        let mut outcome = operation();
        if matches!(outcome, Err(Error::Caller(Reason::Quota))) && self.emptied.is_any() {
            // Files with a deferred truncation still count with their old blocks.
            self.carry_out_truncations()?;
            outcome = operation();
        }
        // Space that became durable after the search is no longer pending, but was not found either.
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
