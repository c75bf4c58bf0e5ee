//! Waiting for events of folios (a fill ended, memory became free). Hashed into buckets, so that folios need
//! no condition variable of their own.
//!
//! A waiter takes a [`Ticket`] while it holds the lock under which it saw the reason to wait. The thread that
//! removes the reason does so under the same lock and calls [`Waits::wake`] afterwards. So the ticket
//! precedes the change and no wake is lost. A wait may also end because of another key in the same bucket:
//! the waiter checks again.

use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// A power of two.
const BUCKETS: usize = 64;

/// Timeout of [`Waits::wait_timeout`].
const MAX_WAIT: Duration = Duration::from_millis(100);

/// See the module documentation.
pub(crate) struct Waits {
    buckets: Vec<Bucket>,
}

#[derive(Default)]
struct Bucket {
    /// Number of wakes so far.
    wakes: Mutex<u64>,
    woken: Condvar,
}

/// A point in time: only later wakes end [`Waits::wait`].
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

    /// Takes a ticket. Call it before releasing the lock under which the reason to wait was seen.
    pub(crate) fn ticket(&self, key: u64) -> Ticket {
        let bucket = key as usize % BUCKETS;
        let wakes = *self.buckets[bucket].wakes.lock();
        Ticket { bucket, wakes }
    }

    /// Waits for a wake after the ticket.
    pub(crate) fn wait(&self, ticket: Ticket) {
        let bucket = &self.buckets[ticket.bucket];
        let mut wakes = bucket.wakes.lock();
        while *wakes == ticket.wakes {
            bucket.woken.wait(&mut wakes);
        }
    }

    /// As [`Waits::wait`], with a timeout: for conditions that may also change without a wake.
    pub(crate) fn wait_timeout(&self, ticket: Ticket) {
        let bucket = &self.buckets[ticket.bucket];
        let mut wakes = bucket.wakes.lock();
        if *wakes == ticket.wakes {
            bucket.woken.wait_for(&mut wakes, MAX_WAIT);
        }
    }

    /// Wakes all waiters of `key`.
    pub(crate) fn wake(&self, key: u64) {
        let bucket = &self.buckets[key as usize % BUCKETS];
        *bucket.wakes.lock() += 1;
        bucket.woken.notify_all();
    }
}
