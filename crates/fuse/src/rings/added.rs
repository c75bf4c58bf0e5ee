//! Entries that are added to a queue while threads of it wait for turns ([`crate::turns`]).
//!
//! The kernel does not give a new entry the requests that were queued before. So the new thread nudges it: it
//! causes a request on its own queue that needs no service, and the commit of that request fetches a queued
//! one. The kernel accepts the nudge only for a regular file that it knows, such as that of the request that
//! waits for a turn.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Scope;

use throughline_device::{FuseEntry, bind_thread};

use super::Rings;
use super::able::WAITING;
use crate::channel::Scratch;
use crate::turns::MAX_TURNS;

/// One processor's queue.
pub(super) struct Queue {
    pub(super) processor: u16,
    /// The entries that take no request: their threads wait for a turn, or have lost them.
    pub(super) absent: AtomicUsize,
    /// The entries that replace them.
    added: AtomicUsize,
}

impl Queue {
    pub(super) fn new(processor: u16) -> Queue {
        Queue {
            processor,
            absent: AtomicUsize::new(0),
            added: AtomicUsize::new(0),
        }
    }
}

/// Adds one if there are fewer than `limit`. Returns whether it did.
fn add_below(count: &AtomicUsize, limit: impl Fn() -> usize) -> bool {
    let more = |count| (count < limit()).then_some(count + 1);
    count
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        .is_ok()
}

impl Rings<'_> {
    /// Counts an entry of the queue as absent. Adds another one, unless enough were added before. `file` is a
    /// regular file that the kernel knows, if the caller knows one.
    ///
    /// Returns whether the queue still has an entry that takes requests if all turns are with its threads. If
    /// not, the caller must not wait for a turn.
    pub(super) fn replace<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        queue: &'scope Queue,
        file: Option<u64>,
    ) -> bool {
        queue.absent.fetch_add(1, Ordering::Relaxed);
        let absent = || queue.absent.load(Ordering::Relaxed);
        if !self.ended.load(Ordering::Acquire) && add_below(&self.added, || WAITING) {
            match add_below(&queue.added, absent) {
                true => self.add(scope, queue, file),
                false => drop(self.added.fetch_sub(1, Ordering::Relaxed)),
            }
        }
        let added = queue.added.load(Ordering::Relaxed);
        absent().saturating_sub(added) < self.entries - MAX_TURNS
    }

    /// Starts a thread with a new entry, which is counted already.
    fn add<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        queue: &'scope Queue,
        file: Option<u64>,
    ) {
        let failed = move |what: &str, error: &io::Error| {
            queue.added.fetch_sub(1, Ordering::Relaxed);
            self.added.fetch_sub(1, Ordering::Relaxed);
            self.warn_once(what, error);
        };
        let begin = move || {
            bind_thread(queue.processor);
            let entry = self.new_entry(queue);
            let entry = entry.inspect_err(|error| failed("adding an entry of a ring", error));
            let mut scratch = entry.ok()?;
            if let Some(file) = file {
                self.nudge(file);
            }
            match scratch.wait() {
                Ok(arrived) => arrived.then_some((queue, scratch)),
                Err(error) => {
                    failed("waiting for a request", &error);
                    None
                }
            }
        };
        if let Err(error) = self.spawn(scope, begin) {
            failed("starting a thread", &error);
        }
    }

    fn new_entry(&self, queue: &Queue) -> io::Result<Scratch> {
        let connection = self.connection.as_fd();
        let mut entry = FuseEntry::new(connection, queue.processor, self.payload_bytes)?;
        entry.register()?;
        Ok(Scratch::of_entry(entry))
    }

    /// Makes the kernel pass on the requests that were queued before it got the current thread's entry.
    fn nudge(&self, file: u64) {
        let number = self.nudges.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.connection.nudge(file, number) {
            self.warn_once("nudging the kernel", &error);
        }
    }
}
