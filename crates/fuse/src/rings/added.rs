//! Entries that are added to a queue while requests of it wait for turns ([`crate::turns`]).
//!
//! The kernel does not give a new entry the requests that were queued before. So the kernel is nudged: it
//! makes a request on that queue that needs no service, and the commit of that request fetches a queued one.
//! The kernel accepts the nudge only for a regular file that it knows, such as that of the request that waits
//! for a turn.

use std::sync::atomic::{AtomicUsize, Ordering};

use throughline_device::{FuseReserve, bind_thread, free_thread};

use super::Rings;
use crate::turns::MAX_TURNS;

/// The entries of each queue that do not wait for turns: those that have them may wait for a request that the
/// kernel has queued.
const FREE: usize = 2 * MAX_TURNS;

/// One CPU's queue.
pub(super) struct Queue {
    pub(super) processor: u16,
    /// The entries whose requests wait for a turn, and those that were lost.
    absent: AtomicUsize,
    /// All entries, with those that are asked for.
    entries: AtomicUsize,
}

/// An entry that a queue needs.
pub(super) struct Wanted {
    processor: u16,
    /// A regular file that the kernel knows, if one is known here.
    file: Option<u64>,
}

impl Queue {
    pub(super) fn new(processor: u16, entries: usize) -> Queue {
        Queue {
            processor,
            absent: AtomicUsize::new(0),
            entries: AtomicUsize::new(entries),
        }
    }

    /// An entry of it takes requests again.
    pub(super) fn returned(&self) {
        self.absent.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Rings<'_> {
    /// An entry of the queue takes no requests for now. Asks the thread of the reserve for another one,
    /// unless enough are left. `file` is as in [`Wanted`].
    pub(super) fn is_absent(&self, queue: &Queue, file: Option<u64>) {
        let absent = queue.absent.fetch_add(1, Ordering::Relaxed) + 1;
        let more = |entries| (entries < absent + FREE).then_some(entries + 1);
        let relaxed = Ordering::Relaxed;
        if queue.entries.fetch_update(relaxed, relaxed, more).is_ok() {
            let processor = queue.processor;
            self.wanted.lock().push(Wanted { processor, file });
            self.waker.wake();
        }
    }

    /// For the thread of the reserve: adds the entries that were asked for.
    pub(super) fn add_wanted(&self, reserve: &mut FuseReserve) {
        let wanted = std::mem::take(&mut *self.wanted.lock());
        for Wanted { processor, file } in wanted {
            if let Err(error) = reserve.add(processor) {
                self.warn_once("adding an entry of a ring", &error);
                continue;
            }
            if let Some(file) = file {
                bind_thread(processor);
                self.nudge(file);
                free_thread();
            }
        }
    }

    /// Makes the kernel pass on a request that was queued on this CPU before a new entry was there.
    fn nudge(&self, file: u64) {
        let number = self.nudges.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.connection.nudge(file, number) {
            self.warn_once("nudging the kernel", &error);
        }
    }
}
