//! [`Spares`]: threads for the entries of the reserve, started ahead. Used by the thread of the reserve.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::Scope;

use throughline_device::{FuseEntry, FuseEvent, FuseReserve, bind_thread};
use throughline_locks::Mutex;

use super::added::Queue;
use super::{Rings, SMALL_BYTES, contain};
use crate::channel::{Channel, Scratch};
use crate::turns::MAX_TURNS;

/// The number of threads that are started before there are entries for them.
const SPARES: usize = MAX_TURNS + 2;

/// Threads that wait for an entry.
pub(super) struct Spares {
    give: mpsc::Sender<FuseEntry>,
    take: Arc<Mutex<mpsc::Receiver<FuseEntry>>>,
    idle: usize,
    /// For requests that need a turn.
    park: mpsc::Sender<Scratch>,
    /// For the requests that the thread of the reserve serves.
    channel: Channel,
}

impl Rings<'_> {
    /// Gives the entries of the reserve threads when they get their first requests, until the connection
    /// ends.
    pub(super) fn serve_reserve<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        mut reserve: FuseReserve,
        mut spares: Spares,
    ) {
        loop {
            match reserve.wait() {
                Ok(FuseEvent::Request(entry)) => {
                    self.give_thread(scope, &mut reserve, &mut spares, entry);
                }
                Ok(FuseEvent::Woken) if self.ended.load(Ordering::Acquire) => return,
                Ok(FuseEvent::Woken) => {
                    self.commit_late(&mut reserve);
                    self.add_wanted(&mut reserve);
                }
                Ok(FuseEvent::Ended) => return,
                Err(error) => tracing::error!(%error, "an entry is lost"),
            }
        }
    }

    fn give_thread<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        reserve: &mut FuseReserve,
        spares: &mut Spares,
        mut entry: FuseEntry,
    ) {
        if spares.idle == 0 {
            self.refill(scope, reserve, spares);
        }
        if spares.idle == 0 {
            return self.serve_here(reserve, spares, entry);
        }
        match reserve.give_ring(&mut entry) {
            Ok(true) => {}
            Ok(false) => return self.serve_here(reserve, spares, entry),
            Err(error) => {
                self.warn_once("opening a descriptor of the connection", &error);
                return self.serve_here(reserve, spares, entry);
            }
        }
        spares.idle -= 1;
        // The thread waits for it.
        let _ = spares.give.send(entry);
        self.refill(scope, reserve, spares);
    }

    /// # Errors
    /// Not all of them can be started.
    pub(super) fn start_spares<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        reserve: &FuseReserve,
        park: mpsc::Sender<Scratch>,
    ) -> io::Result<Spares> {
        let (give, take) = mpsc::channel();
        let connection = self.connection.as_fd().try_clone_to_owned()?;
        let mut spares = Spares {
            give,
            take: Arc::new(Mutex::new(take)),
            idle: 0,
            park,
            channel: Channel::without_turns(connection),
        };
        self.refill(scope, reserve, &mut spares);
        match spares.idle {
            SPARES => Ok(spares),
            _ => Err(io::Error::other("too few threads can be started")),
        }
    }

    /// Starts threads until enough are spare.
    fn refill<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        reserve: &FuseReserve,
        spares: &mut Spares,
    ) {
        while spares.idle < SPARES.min(reserve.rings_left()) {
            let take = Arc::clone(&spares.take);
            let begin = move || {
                // Ends with the reserve.
                let mut entry = take.lock().recv().ok()?;
                let queue = self.queue_of(&entry);
                bind_thread(queue.processor);
                if let Err(error) = entry.begin() {
                    tracing::error!(%error, "beginning to use a ring");
                    self.is_absent(queue, None);
                    return None;
                }
                Some((queue, Scratch::of_entry(entry)))
            };
            if let Err(error) = self.spawn(scope, begin) {
                self.warn_once("starting a thread", &error);
                return;
            }
            spares.idle += 1;
        }
    }

    /// Serves a request on the thread of the reserve. One that needs a turn is left to the thread for late
    /// requests.
    fn serve_here(&self, reserve: &mut FuseReserve, spares: &Spares, entry: FuseEntry) {
        let queue = self.queue_of(&entry);
        let mut scratch = Scratch::of_entry(entry);
        let mut is_served = true;
        contain(|| {
            scratch.take_from_entry()?;
            is_served =
                scratch.is_nudge() || self.server.serve_entry(&spares.channel, &mut scratch)?;
            Ok(())
        });
        if is_served {
            return self.commit_here(reserve, queue, scratch);
        }
        self.is_absent(queue, scratch.header().map(|header| header.nodeid));
        // That thread ends after this one.
        let _ = spares.park.send(scratch);
    }

    fn commit_here(&self, reserve: &mut FuseReserve, queue: &Queue, mut scratch: Scratch) {
        scratch.discard(SMALL_BYTES);
        let entry = scratch.into_entry();
        if let Some(Err(error)) = entry.map(|entry| reserve.commit(entry)) {
            tracing::error!(%error, "answering a request");
            self.is_absent(queue, None);
        }
        if self.server.has_notices() {
            self.notices.ring();
        }
    }

    /// Serves the requests that wait for a turn on no thread of their own, and returns their entries to the
    /// reserve. This thread has no entry, so it may wait for the kernel.
    pub(super) fn serve_late(&self, parked: mpsc::Receiver<Scratch>) {
        for mut scratch in parked {
            contain(|| {
                while !self.server.serve_entry(&self.connection, &mut scratch)? {
                    self.server.await_turn();
                }
                Ok(())
            });
            self.late.lock().push(scratch);
            self.waker.wake();
        }
    }

    /// Commits the replies to late requests.
    fn commit_late(&self, reserve: &mut FuseReserve) {
        let late = std::mem::take(&mut *self.late.lock());
        for scratch in late {
            let queue = scratch.entry().map(|entry| self.queue_of(entry));
            if let Some(queue) = queue {
                queue.returned();
                self.commit_here(reserve, queue, scratch);
            }
        }
    }
}
