//! [`Spares`]: threads for the entries of the reserve, started ahead. Used by the thread of the reserve.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::Scope;

use throughline_device::{FuseEntry, FuseReserve, bind_thread};
use throughline_locks::Mutex;

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
    /// For the requests that the thread of the reserve serves.
    channel: Channel,
}

impl Rings<'_> {
    /// Gives the entries of the reserve threads when they get their first requests, until all have one.
    pub(super) fn serve_reserve<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        mut reserve: FuseReserve,
        mut spares: Spares,
    ) {
        loop {
            match reserve.wait() {
                Ok(Some(entry)) => self.give_thread(scope, &mut reserve, &mut spares, entry),
                Ok(None) => return,
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
            self.refill(scope, spares);
        }
        if spares.idle == 0 {
            return self.serve_here(scope, reserve, spares, entry);
        }
        if let Err(error) = entry.take_ring() {
            self.warn_once("making a ring", &error);
            return self.serve_here(scope, reserve, spares, entry);
        }
        spares.idle -= 1;
        // The thread waits for it.
        let _ = spares.give.send(entry);
        self.refill(scope, spares);
    }

    /// # Errors
    /// Not all of them can be started.
    pub(super) fn start_spares<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<Spares> {
        let (give, take) = mpsc::channel();
        let connection = self.connection.as_fd().try_clone_to_owned()?;
        let mut spares = Spares {
            give,
            take: Arc::new(Mutex::new(take)),
            idle: 0,
            channel: Channel::without_turns(connection),
        };
        self.refill(scope, &mut spares);
        match spares.idle {
            SPARES => Ok(spares),
            _ => Err(io::Error::other("too few threads can be started")),
        }
    }

    /// Starts threads until enough are spare.
    fn refill<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, spares: &mut Spares) {
        while spares.idle < SPARES {
            let take = Arc::clone(&spares.take);
            let begin = move || {
                // Ends with the reserve.
                let mut entry = take.lock().recv().ok()?;
                let queue = self.queue_of(&entry);
                bind_thread(queue.processor);
                if let Err(error) = entry.begin() {
                    tracing::error!(%error, "beginning to use a ring");
                    self.replace(scope, queue, None);
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

    /// Serves a request on the thread of the reserve. One that needs a turn is refused.
    fn serve_here<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        reserve: &mut FuseReserve,
        spares: &Spares,
        entry: FuseEntry,
    ) {
        let queue = self.queue_of(&entry);
        let mut scratch = Scratch::of_entry(entry);
        contain(|| {
            scratch.take_from_entry()?;
            match scratch.is_nudge() || self.server.serve_entry(&spares.channel, &mut scratch)? {
                true => Ok(()),
                false => self.refuse_turn(&mut scratch),
            }
        });
        scratch.discard(SMALL_BYTES);
        let entry = scratch.into_entry();
        if let Some(Err(error)) = entry.map(|entry| reserve.commit(entry)) {
            tracing::error!(%error, "answering a request");
            self.replace(scope, queue, None);
        }
        if self.server.has_notices() {
            self.notices.ring();
        }
    }
}
