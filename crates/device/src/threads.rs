//! [`ThreadsQueue`]: a queue on threads, for what carries out one request at a time ([`Execute`]): the system
//! calls of a file where io_uring is forbidden, and images of formats.
//!
//! A single request runs on the thread that waits for it, without a thread switch, and a quick one on the
//! thread that submits it. With several in flight, the others go to workers of the queue, started when first
//! needed, at most [`MAX_WORKERS`].
//!
//! ```text
//!  owner:  pending ──(all at once)──► jobs ─► worker: execute ─► done ──(all at once)──► ready
//!                                     └──────── Shared ────────┘
//! ```
//!
//! A sleeping thread is woken only if it has work: a worker for a job that no awake worker will take, the
//! owner when as many requests are done as it waits for. More jobs are queued than there are workers, so that
//! a worker continues with the next one without a thread switch while the owner sleeps. Waiting uses the
//! standard library's futex-based primitives: yielding or spinning before the wait loses the time slice on a
//! busy machine.
//!
//! A worker that panics cannot return its request, so the process aborts, as in [`crate::scope`].

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use throughline_locks::{Condvar, Mutex};

use crate::scope::AbortOnUnwind;
use crate::{Completion, Limits, Queue, Request, free_thread, leave_background};

/// The most workers of one queue.
const MAX_WORKERS: usize = 16;

/// Requests queued per worker, including the running one.
const JOBS_PER_WORKER: usize = 4;

/// Carries out requests, for several threads at once.
pub trait Execute: Send + Sync + 'static {
    /// The limits of the device. Of these, [`Limits::queue_depth`] says how many threads are of use.
    fn limits(&self) -> &Limits;

    /// Checks a request.
    ///
    /// # Errors
    /// If it is not to be carried out, for example because it is outside of the device.
    fn admit(&self, request: &Request) -> io::Result<()>;

    /// Whether a request is done before it could be handed to another thread: it is then carried out when it
    /// is submitted.
    fn is_quick(&self, request: &Request) -> bool {
        let _ = request;
        false
    }

    /// Carries out a whole request on this thread. The process aborts if this panics.
    fn execute(&self, request: Request) -> Completion;
}

/// See the head of this file.
#[repr(align(128))] // written with each request, so on its own cache lines
pub struct ThreadsQueue<E: Execute> {
    device: Arc<E>,
    max_workers: usize,
    depth: usize,
    /// Submitted, but not passed to the workers.
    pending: VecDeque<Request>,
    /// Finished, but not reaped.
    ready: Vec<Completion>,
    /// Passed to the workers, and not collected.
    dispatched: usize,
    pool: Option<WorkerPool>,
}

/// The workers, and the state that they share with the owner.
struct WorkerPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Notifies workers: there are jobs, or the queue closes.
    jobs_added: Condvar,
    /// Notifies the owner: as many requests are done as it waits for.
    enough_done: Condvar,
}

struct State {
    jobs: VecDeque<Request>,
    done: Vec<Completion>,
    /// Sleeping workers.
    idle: usize,
    /// The length of `done` at which to wake the owner; `usize::MAX` while it is awake.
    wanted: usize,
    closed: bool,
}

impl<E: Execute> ThreadsQueue<E> {
    /// A queue without threads yet.
    pub fn new(device: Arc<E>) -> ThreadsQueue<E> {
        let device_depth = (device.limits().queue_depth as usize).max(1);
        let max_workers = device_depth.min(MAX_WORKERS);
        ThreadsQueue {
            device,
            max_workers,
            depth: device_depth.min(max_workers * JOBS_PER_WORKER),
            pending: VecDeque::new(),
            ready: Vec::new(),
            dispatched: 0,
            pool: None,
        }
    }

    /// Passes pending requests to workers until `keep` are left.
    fn dispatch(&mut self, keep: usize) {
        let count = self.pending.len().saturating_sub(keep);
        if count == 0 {
            return;
        }
        let pool = self.pool.get_or_insert_with(WorkerPool::new);
        pool.grow_to(
            &self.device,
            (self.dispatched + count).min(self.max_workers),
        );
        if pool.workers.is_empty() {
            // The system refuses even one thread.
            for request in self.pending.drain(..count) {
                self.ready.push(self.device.execute(request));
            }
            return;
        }
        pool.shared.add_jobs(self.pending.drain(..count));
        self.dispatched += count;
    }

    /// Collects finished requests from the workers. Waits for at least `wanted`, or for all passed to them if
    /// those are fewer.
    fn collect(&mut self, wanted: usize) {
        let Some(pool) = self.pool.as_ref().filter(|_| self.dispatched > 0) else {
            return;
        };
        let before = self.ready.len();
        pool.shared
            .take_done(wanted.min(self.dispatched), &mut self.ready);
        self.dispatched -= self.ready.len() - before;
    }
}

impl<E: Execute> Queue for ThreadsQueue<E> {
    fn submit(&mut self, request: Request) {
        if let Err(error) = self.device.admit(&request) {
            self.ready.push(Completion {
                request,
                result: Err(error),
            });
            return;
        }
        if self.device.is_quick(&request) {
            self.ready.push(self.device.execute(request));
            return;
        }
        if self.pending.len() + self.dispatched >= self.depth {
            self.dispatch(0);
            self.collect(usize::from(self.dispatched >= self.depth));
        }
        self.pending.push_back(request);
    }

    fn kick(&mut self) {
        self.dispatch(0);
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let wait_for = wait_for.min(self.in_flight());
        self.collect(0);
        // Keep one for this thread if it would have to wait anyway.
        self.dispatch(usize::from(self.ready.len() < wait_for));
        while self.ready.len() < wait_for {
            match self.pending.pop_front() {
                Some(request) => self.ready.push(self.device.execute(request)),
                None => self.collect(wait_for - self.ready.len()),
            }
        }
        self.dispatch(0);
        done.append(&mut self.ready);
    }

    fn in_flight(&self) -> usize {
        self.pending.len() + self.dispatched + self.ready.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

impl<E: Execute> Drop for ThreadsQueue<E> {
    fn drop(&mut self) {
        self.collect(self.dispatched);
        if let Some(pool) = self.pool.take() {
            pool.shared.state.lock().closed = true;
            pool.shared.jobs_added.notify_all();
            for worker in pool.workers {
                let _ = worker.join(); // it aborts rather than panic
            }
        }
    }
}

impl WorkerPool {
    fn new() -> WorkerPool {
        let state = State {
            jobs: VecDeque::new(),
            done: Vec::new(),
            idle: 0,
            wanted: usize::MAX,
            closed: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            jobs_added: Condvar::new(),
            enough_done: Condvar::new(),
        });
        WorkerPool {
            shared,
            workers: Vec::new(),
        }
    }

    /// Starts workers until there are `count`, or the system refuses a thread.
    fn grow_to<E: Execute>(&mut self, device: &Arc<E>, count: usize) {
        while self.workers.len() < count {
            let (device, shared) = (Arc::clone(device), Arc::clone(&self.shared));
            leave_background();
            let worker = thread::Builder::new()
                .name("throughline-io".into())
                .spawn(move || {
                    free_thread();
                    shared.work(&*device);
                });
            match worker {
                Ok(worker) => self.workers.push(worker),
                Err(_) => return,
            }
        }
    }
}

impl Shared {
    /// Adds jobs, and wakes a sleeping worker for each.
    fn add_jobs(&self, jobs: impl ExactSizeIterator<Item = Request>) {
        let count = jobs.len();
        let mut state = self.state.lock();
        state.jobs.extend(jobs);
        let wake = count.min(state.idle);
        drop(state);
        for _ in 0..wake {
            self.jobs_added.notify_one();
        }
    }

    /// Moves finished requests to `to`, once there are at least `wanted`.
    fn take_done(&self, wanted: usize, to: &mut Vec<Completion>) {
        let mut state = self.state.lock();
        while state.done.len() < wanted {
            state.wanted = wanted;
            self.enough_done.wait(&mut state);
        }
        state.wanted = usize::MAX;
        to.append(&mut state.done);
    }

    /// The main loop of a worker.
    fn work(&self, device: &impl Execute) {
        let bomb = AbortOnUnwind("an I/O worker panicked");
        let mut state = self.state.lock();
        loop {
            while state.jobs.is_empty() && !state.closed {
                state.idle += 1;
                self.jobs_added.wait(&mut state);
                state.idle -= 1;
            }
            let Some(request) = state.jobs.pop_front() else {
                break; // closed
            };
            drop(state);
            let completion = device.execute(request);
            state = self.state.lock();
            state.done.push(completion);
            if state.done.len() >= state.wanted {
                state.wanted = usize::MAX;
                drop(state);
                self.enough_done.notify_one();
                state = self.state.lock();
            }
        }
        std::mem::forget(bomb);
    }
}
