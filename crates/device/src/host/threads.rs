//! The thread engine: `preadv2` and `pwritev2`, for systems that forbid io_uring.
//!
//! A single request runs on the thread that waits for it, without a thread switch. With several in flight,
//! the others go to workers of the queue, started when first needed, at most [`MAX_WORKERS`].
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
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::fs::fdatasync;
use rustix::io::{ReadWriteFlags, preadv2, pwritev2};

use super::file::HostFile;
use super::transfer::{Step, Transfer};
use crate::scope::AbortOnUnwind;
use crate::{Completion, Op, Queue, Request, free_thread};

/// The most workers of one queue.
const MAX_WORKERS: usize = 16;

/// Requests queued per worker, including the running one.
const JOBS_PER_WORKER: usize = 4;

#[repr(align(128))] // written with each request, so on its own cache lines
pub(super) struct ThreadsQueue {
    file: Arc<HostFile>,
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

impl ThreadsQueue {
    pub(super) fn new(file: Arc<HostFile>) -> ThreadsQueue {
        let device_depth = (file.info.limits.queue_depth as usize).max(1);
        let max_workers = device_depth.min(MAX_WORKERS);
        ThreadsQueue {
            file,
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
        pool.grow_to(&self.file, (self.dispatched + count).min(self.max_workers));
        if pool.workers.is_empty() {
            // The system refuses even one thread.
            for request in self.pending.drain(..count) {
                self.ready.push(execute(&self.file, request));
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

impl Queue for ThreadsQueue {
    fn submit(&mut self, request: Request) {
        if let Err(error) = self.file.admit(&request) {
            self.ready.push(Completion {
                request,
                result: Err(error),
            });
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
                Some(request) => self.ready.push(execute(&self.file, request)),
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

impl Drop for ThreadsQueue {
    fn drop(&mut self) {
        self.collect(self.dispatched);
        if let Some(pool) = self.pool.take() {
            pool.shared.lock().closed = true;
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
    fn grow_to(&mut self, file: &Arc<HostFile>, count: usize) {
        while self.workers.len() < count {
            let (file, shared) = (Arc::clone(file), Arc::clone(&self.shared));
            let worker = thread::Builder::new()
                .name("throughline-io".into())
                .spawn(move || {
                    free_thread();
                    shared.work(&file);
                });
            match worker {
                Ok(worker) => self.workers.push(worker),
                Err(_) => return,
            }
        }
    }
}

impl Shared {
    /// A poisoned lock can be used: workers abort the process if they panic, and the owner does not panic
    /// while holding it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds jobs, and wakes a sleeping worker for each.
    fn add_jobs(&self, jobs: impl ExactSizeIterator<Item = Request>) {
        let count = jobs.len();
        let mut state = self.lock();
        state.jobs.extend(jobs);
        let wake = count.min(state.idle);
        drop(state);
        for _ in 0..wake {
            self.jobs_added.notify_one();
        }
    }

    /// Moves finished requests to `to`, once there are at least `wanted`.
    fn take_done(&self, wanted: usize, to: &mut Vec<Completion>) {
        let mut state = self.lock();
        while state.done.len() < wanted {
            state.wanted = wanted;
            state = sleep(&self.enough_done, state);
        }
        state.wanted = usize::MAX;
        to.append(&mut state.done);
    }

    /// The main loop of a worker.
    fn work(&self, file: &HostFile) {
        let bomb = AbortOnUnwind("an I/O worker panicked");
        let mut state = self.lock();
        loop {
            while state.jobs.is_empty() && !state.closed {
                state.idle += 1;
                state = sleep(&self.jobs_added, state);
                state.idle -= 1;
            }
            let Some(request) = state.jobs.pop_front() else {
                break; // closed
            };
            drop(state);
            let completion = execute(file, request);
            state = self.lock();
            state.done.push(completion);
            if state.done.len() >= state.wanted {
                state.wanted = usize::MAX;
                drop(state);
                self.enough_done.notify_one();
                state = self.lock();
            }
        }
        std::mem::forget(bomb);
    }
}

fn sleep<'a>(on: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    on.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Executes a whole request on this thread.
pub(super) fn execute(file: &HostFile, request: Request) -> Completion {
    let mut transfer = Transfer::new(request);
    loop {
        let offset = transfer.offset_bytes();
        let result = match transfer.request.op() {
            Op::Read => {
                let mut slices = transfer.read_slices();
                preadv2(file.fd(), &mut slices, offset, ReadWriteFlags::empty()).map(|n| n as u64)
            }
            Op::Write => {
                let fua = transfer.request.fua();
                let flags = if fua {
                    ReadWriteFlags::DSYNC
                } else {
                    ReadWriteFlags::empty()
                };
                pwritev2(file.fd(), &transfer.write_slices(), offset, flags).map(|n| n as u64)
            }
            Op::Flush => fdatasync(file.fd()).map(|()| 0),
            op => file
                .clear(op, offset, transfer.request.len_bytes())
                .map(|()| 0),
        };
        if let Step::Finished(result) = transfer.advance(file, result) {
            return transfer.finish(result);
        }
    }
}
