//! Waiting for what happens to a folio (a fill ends, memory becomes free): hashed, so that folios carry no condition of their own.
//!
//! The waiter takes a [`Ticket`] while it holds the lock under which it saw what it has to wait for; who changes that does so
//! under the same lock, and calls [`Waits::wake`] afterwards. So the ticket is from before the change, and no wake is lost.
//! A wait may end for another key's sake: the waiter looks again.

use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// A power of two.
const BUCKETS: usize = 64;

/// How long [`Waits::wait_a_while`] waits at most.
const A_WHILE: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Waits {
    buckets: Vec<Bucket>,
}

#[derive(Default)]
struct Bucket {
    /// Counts wakes.
    wakes: Mutex<u64>,
    woken: Condvar,
}

/// What [`Waits::wait`] waits behind.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct Ticket {
    bucket: usize,
    wakes: u64,
}

impl Waits {
    pub(crate) fn new() -> Waits {
        Waits {
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
        }
    }

    /// To be taken before the lock is let go under which the reason to wait was seen.
    pub(crate) fn ticket(&self, key: u64) -> Ticket {
        let bucket = key as usize % BUCKETS;
        let wakes = *self.buckets[bucket].wakes.lock();
        Ticket { bucket, wakes }
    }

    /// Waits for a wake that came after the ticket.
    pub(crate) fn wait(&self, ticket: Ticket) {
        let bucket = &self.buckets[ticket.bucket];
        let mut wakes = bucket.wakes.lock();
        while *wakes == ticket.wakes {
            bucket.woken.wait(&mut wakes);
        }
    }

    /// As [`Waits::wait`], but for a moment at most: for what may come about otherwise too.
    pub(crate) fn wait_a_while(&self, ticket: Ticket) {
        let bucket = &self.buckets[ticket.bucket];
        let mut wakes = bucket.wakes.lock();
        if *wakes == ticket.wakes {
            bucket.woken.wait_for(&mut wakes, A_WHILE);
        }
    }

    /// Wakes all who wait for `key`.
    pub(crate) fn wake(&self, key: u64) {
        let bucket = &self.buckets[key as usize % BUCKETS];
        *bucket.wakes.lock() += 1;
        bucket.woken.notify_all();
    }
}
