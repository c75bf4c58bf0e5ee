//! Queues of calls, each with a few threads to run them.
//!
//! Invariant: a queued call always has a thread that will run it. Threads recheck the queue, under its lock,
//! before they exit; `submit` starts a thread if too few are idle and the limit allows.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use throughline_locks::{Condvar, Mutex, MutexGuard};

/// About as many calls of one kind as a disk can use concurrently.
const MAX_THREADS: usize = 8;
/// An idle thread exits after this.
const IDLE: Duration = Duration::from_secs(5);

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Read calls.
pub(super) static READS: Queue = Queue::new();
/// Write calls: throttled when the device falls behind.
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
    /// Threads waiting for a job.
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
        self.state.lock()
    }

    /// Queues a job for a thread. If the system cannot start any thread, the caller runs one.
    pub(super) fn submit(&'static self, job: Job) {
        let mut state = self.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            drop(state);
            return self.wake.notify_one();
        }
        if state.threads == MAX_THREADS {
            return;
        }
        state.threads += 1;
        drop(state);
        throughline_device::leave_background();
        let thread = thread::Builder::new().name("tl-async".into());
        if thread.spawn(|| self.work()).is_err() {
            let mut state = self.lock();
            state.threads -= 1;
            // Others whose thread could not be started either may have counted on this one.
            let own = match state.threads {
                0 => std::mem::take(&mut state.jobs),
                _ => VecDeque::new(),
            };
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
            let timeout = self.wake.wait_for(&mut state, IDLE);
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// A panic reaches the waiter of the call; the thread continues.
fn carry_out(job: Job) {
    let _ = catch_unwind(AssertUnwindSafe(job));
}
