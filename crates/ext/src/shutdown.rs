//! Takes a volume down while it is in use, as `FS_IOC_SHUTDOWN` does: from then on nothing is written and
//! every call fails. The disk is left as if by a crash at that moment, and is recovered in the same way.
//!
//! The order: no new changes begin; running changes finish, and what the mode requires is written; the
//! journal refuses changes; the device is cut off, so that I/O still in progress in the layers above fails;
//! the threads end.
//!
//! A running change is never refused before its commit: half a change must not be committed.

use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::fs::Fs;

/// What is still written when a volume is taken down (`EXT4_GOING_FLAGS_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeDown {
    /// Everything: dirty data and all changes.
    Flush,
    /// All metadata changes; dirty data is lost, and with it the size changes that depend on it.
    FlushLog,
    /// Nothing.
    NoFlush,
}

impl Fs {
    /// Takes the volume down. Returns when no more I/O can reach the disk. A second call does nothing.
    ///
    /// # Errors
    /// With [`TakeDown::Flush`], those of [`Fs::sync`]; the volume is then not taken down. With
    /// [`TakeDown::FlushLog`], those of the commit; the volume is taken down anyway.
    pub fn take_down(&self, mode: TakeDown) -> Result<()> {
        if self.is_down() {
            return Ok(());
        }
        if mode == TakeDown::Flush {
            self.sync()?;
        }
        if self.life.going.swap(true, Ordering::AcqRel) {
            // Another thread is taking it down.
            return Ok(());
        }
        let committed = match mode {
            // Without this, changes completed since the sync would be lost.
            TakeDown::Flush | TakeDown::FlushLog => self
                .check_going_on()
                .and_then(|()| Ok(self.journal.commit()?)),
            TakeDown::NoFlush => Ok(()),
        };
        self.life.down.store(true, Ordering::Release);
        self.journal.refuse_changes("the volume was taken down");
        self.disk.cut();
        self.cache.give_up(Error::Down.into());
        if let Some(mmp) = &self.mmp {
            mmp.abandon();
        }
        committed
    }
}

#[cfg(test)]
mod tests;
