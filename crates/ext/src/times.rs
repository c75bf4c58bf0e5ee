//! Timestamps that change without another change of the inode: the access time, and the times of a write that
//! changes nothing else.
//!
//! They are set in memory, and stored with the inode's next change, when the inode or the volume is synced,
//! when the volume is closed, and when [`MAX_PENDING`] inodes are waiting or one has waited for [`LONGEST_S`]
//! (a day with lazy times). So a read does not cost a transaction.
//!
//! Invariants:
//! - An inode whose times are only in memory is on the list, which keeps it in memory.
//! - A read takes no lock and writes nothing while the access time need not change.

pub(crate) mod inode;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline_extfmt::InodeImage;
use throughline_extfmt::inode::{InodeFlags, Time};
use throughline_extfmt::time::Timestamp;
use throughline_locks::Mutex;

use crate::base::Access;
use crate::error::Result;
use crate::inode::Inode;
use crate::inode::Inodes;
use crate::options::{AccessTimes, OpenOptions};

/// Most inodes whose times are only in memory.
const MAX_PENDING: usize = 1024;
/// Longest time that a change is kept while others are added, in seconds; with lazy times [`DAY_S`].
const LONGEST_S: i64 = 30;
/// A day.
const DAY_S: i64 = 24 * 3600;
/// The kernel's clock tick: the shortest interval between two updates of an access time.
const TICK_NS: i64 = 4_000_000;

/// The volume's time options, and the inodes waiting to be stored.
pub(crate) struct Times {
    access: AccessTimes,
    directories: bool,
    /// Times of writes are kept in memory too.
    pub(crate) lazy: bool,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    inodes: Vec<Arc<Inode>>,
    /// When the first of them was added, in seconds.
    since: i64,
}

impl Times {
    pub(crate) fn new(options: &OpenOptions) -> Self {
        Self {
            access: options.access_times,
            directories: options.directory_access_times,
            lazy: options.lazy_times,
            kept: Mutex::default(),
        }
    }

    /// When the access time is next due, in nanoseconds; `None` if it must be set now.
    fn next_due(&self, raw: &InodeImage, now: Timestamp) -> Option<i64> {
        let time = |which| raw.time(which).unwrap_or_default();
        let accessed = time(Time::Access);
        let next = match self.access {
            AccessTimes::Never => return Some(i64::MAX),
            // A time in the future is corrected.
            AccessTimes::Strict if accessed > now => return None,
            AccessTimes::Strict => nanoseconds(accessed).saturating_add(TICK_NS),
            AccessTimes::Relative => {
                if time(Time::Modify) >= accessed || time(Time::Change) >= accessed {
                    return None;
                }
                nanoseconds(accessed).saturating_add(DAY_S * 1_000_000_000)
            }
        };
        (nanoseconds(now) < next).then_some(next)
    }
}

fn nanoseconds(time: Timestamp) -> i64 {
    let seconds = time.seconds.saturating_mul(1_000_000_000);
    seconds.saturating_add(time.nanoseconds.into())
}

impl Inodes {
    /// Records a read of the inode: sets its access time according to the volume's options. Failure to store
    /// it does not fail the read.
    pub fn note_access(&self, inode: &Inode) {
        let times = &self.times;
        if times.access == AccessTimes::Never
            || self.access != Access::Write
            || self.life.closed.load(Ordering::Relaxed)
            || self.life.written.load(Ordering::Relaxed)
            || inode.flags.any(InodeFlags::NOATIME)
            || inode.is_dir() && !times.directories
        {
            return;
        }
        let now = self.now();
        let next_due = &inode.times.next_due_ns;
        if nanoseconds(now) < next_due.load(Ordering::Relaxed) {
            return;
        }
        {
            let mut raw = inode.raw.write();
            if let Some(until) = times.next_due(&raw, now) {
                next_due.store(until, Ordering::Relaxed);
                return;
            }
            raw.set_time(Time::Access, now);
            // If the inode's resolution is coarser than the clock, or its other times are as recent, the
            // access time may still be due.
            let until = times.next_due(&raw, now);
            let tick = nanoseconds(now).saturating_add(TICK_NS);
            next_due.store(until.unwrap_or(tick).max(tick), Ordering::Relaxed);
        }
        self.keep_times(inode);
    }

    /// Records that only the inode's times changed, in memory.
    pub(crate) fn keep_times(&self, inode: &Inode) {
        // An inode is in the table as long as it has a holder and is not freed.
        let Some(own) = self.inodes.get(inode.ino) else {
            return;
        };
        if !std::ptr::eq(&*own, inode) || inode.times.kept.swap(true, Ordering::AcqRel) {
            return;
        }
        let now = self.now().seconds;
        let longest = if self.times.lazy { DAY_S } else { LONGEST_S };
        let due = {
            let mut kept = self.times.kept.lock();
            if kept.inodes.is_empty() {
                kept.since = now;
            }
            kept.inodes.push(own);
            kept.inodes.len() >= MAX_PENDING || now.saturating_sub(kept.since) > longest
        };
        if due && let Err(error) = self.store_kept_times() {
            tracing::debug!(%error, "storing access times");
        }
    }

    /// Stores the times that are only in memory, in ordinary transactions. No handle may be open and no inode
    /// lock held.
    ///
    /// # Errors
    /// Journal errors; the remaining times are then lost, since the volume refuses further changes.
    pub(crate) fn store_kept_times(&self) -> Result<()> {
        let inodes = std::mem::take(&mut self.times.kept.lock().inodes);
        let step = self.step_credits().max(1) as usize;
        for (index, some) in inodes.chunks(step).enumerate() {
            let stored = self.transact(some.len() as u32, |h| {
                for inode in some {
                    if !inode.times.kept.load(Ordering::Acquire) {
                        continue;
                    }
                    if let Err(error) = self.store_attributes(h, inode)
                        && !inode.is_freed()
                    {
                        return Err(error);
                    }
                }
                Ok(())
            });
            if stored.is_err() {
                // The next sync stores them.
                let left = inodes.iter().skip(index * step).cloned();
                self.times.kept.lock().inodes.extend(left);
                return stored;
            }
        }
        Ok(())
    }

    /// As [`Inodes::store_kept_times`], for one inode.
    pub(crate) fn store_times_of(&self, inode: &Inode) -> Result<()> {
        if !inode.times.kept.load(Ordering::Acquire) {
            return Ok(());
        }
        self.transact(1, |h| match self.store_attributes(h, inode) {
            Err(_) if inode.is_freed() => Ok(()),
            done => done,
        })
    }
}
