//! [`Turns`]: permits to wait for the kernel to drop pages ([`crate::coherence`]). They leave enough threads
//! to serve the requests that the kernel waits for meanwhile.
//!
//! A request that waits for a turn is queued and holds no thread. One that came over io_uring holds its
//! thread, and another thread takes over the requests of its queue ([`crate::rings`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use throughline_locks::{Condvar, Mutex};

use crate::channel::{Channel, Scratch};

/// The number of threads that may wait for the kernel to drop pages.
pub(crate) const MAX_TURNS: usize = 4;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<Queue>,
    /// The number of queued requests, readable without the lock.
    parked: AtomicUsize,
    /// Notified when a turn is returned and a thread waits for one.
    returned: Condvar,
}

#[derive(Default)]
struct Queue {
    taken: usize,
    parked: VecDeque<Parked>,
    /// Threads in [`Turns::wait`].
    waiting: usize,
}

/// A request that waits for a turn.
pub(crate) struct Parked {
    pub(crate) channel: Arc<Channel>,
    pub(crate) scratch: Scratch,
}

/// A turn; dropping it returns it.
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Takes a turn; `None` if none is free.
    pub(crate) fn take(&self) -> Option<Turn<'_>> {
        let mut queue = self.state.lock();
        if queue.taken >= MAX_TURNS {
            return None;
        }
        queue.taken += 1;
        Some(Turn(self))
    }

    /// Queues a request. The holder of a turn takes it with [`Turns::next`] after its turn.
    pub(crate) fn park(&self, parked: Parked) {
        let mut queue = self.state.lock();
        queue.parked.push_back(parked);
        self.parked.store(queue.parked.len(), Ordering::SeqCst);
    }

    /// Blocks until a turn is free.
    pub(crate) fn wait(&self) {
        let mut queue = self.state.lock();
        queue.waiting += 1;
        while queue.taken >= MAX_TURNS {
            self.returned.wait(&mut queue);
        }
        queue.waiting -= 1;
    }

    /// The number of free turns.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        MAX_TURNS - self.state.lock().taken
    }

    /// The next queued request, if a turn is free for it.
    pub(crate) fn next(&self) -> Option<Parked> {
        if self.parked.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut queue = self.state.lock();
        if queue.taken >= MAX_TURNS {
            return None;
        }
        let next = queue.parked.pop_front();
        self.parked.store(queue.parked.len(), Ordering::SeqCst);
        next
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.state.lock();
        queue.taken -= 1;
        if queue.waiting > 0 {
            // All, because the first may no longer need a turn.
            self.0.returned.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A channel that discards what is sent.
    fn channel() -> Channel {
        let null = std::fs::File::options().write(true).open("/dev/null");
        Channel::new(null.expect("/dev/null").into())
    }

    #[test]
    fn a_thread_waits_until_a_turn_is_free() {
        let turns = Turns::default();
        turns.wait();
        let mut held: Vec<_> = (0..MAX_TURNS).map(|_| turns.take().unwrap()).collect();
        std::thread::scope(|scope| {
            let waits = [0, 1].map(|_| scope.spawn(|| turns.wait()));
            while turns.state.lock().waiting < 2 {
                std::thread::yield_now();
            }
            assert!(waits.iter().all(|thread| !thread.is_finished()));
            // The first may take it, so the next is woken by another.
            held.truncate(MAX_TURNS - 2);
        });
        assert_eq!(turns.free(), 2);
    }

    #[test]
    fn a_request_without_a_turn_waits_for_one() {
        let turns = Turns::default();
        let turn: Vec<_> = (0..MAX_TURNS).map(|_| turns.take().unwrap()).collect();
        turns.park(Parked {
            channel: Arc::new(channel()),
            scratch: Scratch::new(4096),
        });
        assert!(turns.next().is_none());
        drop(turn);
        assert!(turns.next().is_some());
        assert!(turns.next().is_none());
    }
}
