//! Queues of calls, each with a few threads that carry them out.
//!
//! Invariant: while a call is queued, a thread works that will take it: threads look at the queue before they end, under its
//! lock, and a call starts one where none waits and there may be another.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// As many calls of a kind as a disk works on at once with profit.
const MOST_THREADS: usize = 8;
/// A thread without work ends after this.
const IDLE: Duration = Duration::from_secs(5);

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Calls that read.
pub(super) static READS: Queue = Queue::new();
/// Calls that write: they pause where the device does not keep up.
pub(super) static WRITES: Queue = Queue::new();
/// Syncs, which wait for the device.
pub(super) static SYNCS: Queue = Queue::new();

pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Of the threads, those that wait for a job.
    idle: usize,
}

impl Queue {
    const fn new() -> Queue {
        Queue {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                threads: 0,
                idle: 0,
            }),
            wake: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread carry it out. Where the system gives no thread at all, the caller does.
    pub(super) fn submit(&'static self, job: Job) {
        let mut state = self.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            drop(state);
            return self.wake.notify_one();
        }
        if state.threads == MOST_THREADS {
            return;
        }
        state.threads += 1;
        drop(state);
        let thread = thread::Builder::new().name("tl-async".into());
        if thread.spawn(|| self.work()).is_err() {
            let mut state = self.lock();
            state.threads -= 1;
            let own = (state.threads == 0)
                .then(|| state.jobs.pop_front())
                .flatten();
            drop(state);
            own.into_iter().for_each(carry_out);
        }
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                carry_out(job);
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let waited = self.wake.wait_timeout(state, IDLE);
            let timeout;
            (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// A panic is told to whoever waits for the call, and the thread goes on.
fn carry_out(job: Job) {
    let _ = catch_unwind(AssertUnwindSafe(job));
}
