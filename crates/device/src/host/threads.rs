//! The thread engine: `preadv2` and `pwritev2`, for where io_uring is forbidden.
//!
//! A request that is alone runs on the thread that waits for it, and costs no hand-over. With several in
//! flight the others go to workers of the queue's own, started when first needed, at most [`MAX_WORKERS`].
//!
//! ```text
//!  owner:  pending ──(all at once)──► jobs ─► worker: carry_out ─► done ──(all at once)──► ready
//!                                     └───────────── Desk ───────────┘
//! ```
//!
//! Who sleeps is woken only for something to do: workers for jobs that no one is awake for, the owner when
//! as much is done as it waits for. The line of jobs is longer than the crew, so that a worker goes on to
//! the next one without a switch of threads while the owner sleeps. Waiting is the standard library's, on
//! a futex: what yields or spins for a while first loses its turn on a busy machine, each time.
//!
//! A worker that panicked could not give its request back: that aborts, as [`crate::scope`] would.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::fs::fdatasync;
use rustix::io::{ReadWriteFlags, preadv2, pwritev2};

use super::file::HostFile;
use super::transfer::{Step, Transfer};
use crate::scope::AbortOnUnwind;
use crate::{Completion, Op, Queue, Request};

/// The most workers of one queue.
const MAX_WORKERS: usize = 16;

/// Requests in line for each worker, the one at hand included.
const LINE: usize = 4;

#[repr(align(128))] // written with each request: on lines of its own
pub(super) struct ThreadsQueue {
    file: Arc<HostFile>,
    max_workers: usize,
    depth: usize,
    /// Submitted, and not handed to the workers.
    pending: VecDeque<Request>,
    /// Finished, and not reaped.
    ready: Vec<Completion>,
    /// Handed to the workers, and not taken back.
    handed: usize,
    crew: Option<Crew>,
}

/// The workers, and the desk between them and the owner.
struct Crew {
    desk: Arc<Desk>,
    workers: Vec<JoinHandle<()>>,
}

struct Desk {
    state: Mutex<State>,
    /// For workers: there are jobs, or the desk closes.
    jobs_there: Condvar,
    /// For the owner: as much is done as it waits for.
    enough_done: Condvar,
}

struct State {
    jobs: VecDeque<Request>,
    done: Vec<Completion>,
    /// Workers that sleep.
    idle: usize,
    /// With how many in `done` the owner is to be woken; none is enough while it is awake.
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
            depth: device_depth.min(max_workers * LINE),
            pending: VecDeque::new(),
            ready: Vec::new(),
            handed: 0,
            crew: None,
        }
    }

    /// Hands pending requests to workers until `keep` are left.
    fn dispatch(&mut self, keep: usize) {
        let count = self.pending.len().saturating_sub(keep);
        if count == 0 {
            return;
        }
        let crew = self.crew.get_or_insert_with(Crew::new);
        crew.hire(&self.file, (self.handed + count).min(self.max_workers));
        if crew.workers.is_empty() {
            // No threads to be had at all.
            for request in self.pending.drain(..count) {
                self.ready.push(carry_out(&self.file, request));
            }
            return;
        }
        crew.desk.take_jobs(self.pending.drain(..count));
        self.handed += count;
    }

    /// Takes what the workers have finished; waits for `wanted` of it, or all that was handed to them.
    fn collect(&mut self, wanted: usize) {
        let Some(crew) = self.crew.as_ref().filter(|_| self.handed > 0) else {
            return;
        };
        let before = self.ready.len();
        crew.desk
            .give_done(wanted.min(self.handed), &mut self.ready);
        self.handed -= self.ready.len() - before;
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
        if self.pending.len() + self.handed >= self.depth {
            self.dispatch(0);
            self.collect(usize::from(self.handed >= self.depth));
        }
        self.pending.push_back(request);
    }

    fn kick(&mut self) {
        self.dispatch(0);
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let wait_for = wait_for.min(self.in_flight());
        self.collect(0);
        // One is left for this thread, if it is going to wait anyway.
        self.dispatch(usize::from(self.ready.len() < wait_for));
        while self.ready.len() < wait_for {
            match self.pending.pop_front() {
                Some(request) => self.ready.push(carry_out(&self.file, request)),
                None => self.collect(wait_for - self.ready.len()),
            }
        }
        self.dispatch(0);
        done.append(&mut self.ready);
    }

    fn in_flight(&self) -> usize {
        self.pending.len() + self.handed + self.ready.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

impl Drop for ThreadsQueue {
    fn drop(&mut self) {
        self.collect(self.handed);
        if let Some(crew) = self.crew.take() {
            crew.desk.lock().closed = true;
            crew.desk.jobs_there.notify_all();
            for worker in crew.workers {
                let _ = worker.join(); // it aborts rather than panic
            }
        }
    }
}

impl Crew {
    fn new() -> Crew {
        let state = State {
            jobs: VecDeque::new(),
            done: Vec::new(),
            idle: 0,
            wanted: usize::MAX,
            closed: false,
        };
        let desk = Arc::new(Desk {
            state: Mutex::new(state),
            jobs_there: Condvar::new(),
            enough_done: Condvar::new(),
        });
        Crew {
            desk,
            workers: Vec::new(),
        }
    }

    /// Makes the crew `count` strong, or as strong as the system has threads for us.
    fn hire(&mut self, file: &Arc<HostFile>, count: usize) {
        while self.workers.len() < count {
            let (file, desk) = (Arc::clone(file), Arc::clone(&self.desk));
            let worker = thread::Builder::new()
                .name("throughline-io".into())
                .spawn(move || desk.work(&file));
            match worker {
                Ok(worker) => self.workers.push(worker),
                Err(_) => return,
            }
        }
    }
}

impl Desk {
    /// Nobody panics while holding it without the process being aborted, so it is never poisoned for us.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds jobs, and wakes as many workers as there are jobs or sleepers.
    fn take_jobs(&self, jobs: impl ExactSizeIterator<Item = Request>) {
        let count = jobs.len();
        let mut state = self.lock();
        state.jobs.extend(jobs);
        let wake = count.min(state.idle);
        drop(state);
        for _ in 0..wake {
            self.jobs_there.notify_one();
        }
    }

    /// Moves what is done to `to`, once there are `wanted`.
    fn give_done(&self, wanted: usize, to: &mut Vec<Completion>) {
        let mut state = self.lock();
        while state.done.len() < wanted {
            state.wanted = wanted;
            state = sleep(&self.enough_done, state);
        }
        state.wanted = usize::MAX;
        to.append(&mut state.done);
    }

    /// A worker's life.
    fn work(&self, file: &HostFile) {
        let bomb = AbortOnUnwind("an I/O worker panicked");
        let mut state = self.lock();
        loop {
            while state.jobs.is_empty() && !state.closed {
                state.idle += 1;
                state = sleep(&self.jobs_there, state);
                state.idle -= 1;
            }
            let Some(request) = state.jobs.pop_front() else {
                break; // closed
            };
            drop(state);
            let completion = carry_out(file, request);
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

/// Does a request from beginning to end on this thread.
pub(super) fn carry_out(file: &HostFile, request: Request) -> Completion {
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
