//! Taking a volume down while it is in use, as `FS_IOC_SHUTDOWN` does: from then on nothing is written and every call fails.
//! What is on the disk is what a crash at that moment leaves, and is recovered as after one.
//!
//! In this order: no change begins any more; those under way end, and what the caller still wants on the disk goes there; the
//! journal takes no more; the device is cut off, which nothing passes, whatever is still under way above; the threads end.
//!
//! A change that is under way meets no refusal before it is committed: half of one would be nothing to commit.

use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::fs::Fs;

/// What still goes to the disk when a volume is taken down (`EXT4_GOING_FLAGS_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeDown {
    /// Everything: data that is dirty, and all changes.
    Flush,
    /// All changes that were made; dirty data is lost, and with it the sizes that it would have brought.
    FlushLog,
    /// Nothing.
    NoFlush,
}

impl Fs {
    /// Takes the volume down. Returns when nothing is on its way to the disk any more. A second call does nothing.
    ///
    /// # Errors
    /// With [`TakeDown::Flush`] those of [`Fs::sync`]; the volume is not taken down then. With [`TakeDown::FlushLog`] those of
    /// the commit; it is.
    pub fn take_down(&self, mode: TakeDown) -> Result<()> {
        if self.is_down() {
            return Ok(());
        }
        if mode == TakeDown::Flush {
            self.sync()?;
        }
        if self.life.going.swap(true, Ordering::AcqRel) {
            // Another thread is at it.
            return Ok(());
        }
        let committed = match mode {
            // What came between that and this would else be lost, though it was done.
            TakeDown::Flush | TakeDown::FlushLog => self.journal.commit(),
            TakeDown::NoFlush => Ok(()),
        };
        self.life.down.store(true, Ordering::Release);
        self.journal.refuse_changes("the volume was taken down");
        self.disk.cut();
        self.cache.give_up(Error::Down.into());
        if let Some(mmp) = &self.mmp {
            mmp.abandon();
        }
        Ok(committed?)
    }
}

#[cfg(test)]
mod tests;
