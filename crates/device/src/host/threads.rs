//! The thread engine: `preadv2` and `pwritev2`, for where io_uring is forbidden.
//!
//! A request that is alone runs on the thread that waits for it, and costs no hand-over. With several in
//! flight the others go to workers of the queue's own, started when first needed, at most [`MAX_DEPTH`].
//! A worker that panicked could not give its request back: that aborts, as [`crate::scope`] would.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::fs::fdatasync;
use rustix::io::{ReadWriteFlags, preadv2, pwritev2};

use super::file::HostFile;
use super::transfer::{Step, Transfer};
use crate::scope::{AbortOnUnwind, abort};
use crate::{Completion, Op, Queue, Request};

/// The most requests of one queue at once: each takes a thread.
const MAX_DEPTH: usize = 16;

pub(super) struct ThreadsQueue {
    file: Arc<HostFile>,
    depth: usize,
    /// Submitted, and with no worker yet.
    pending: VecDeque<Request>,
    /// Finished, and not reaped.
    ready: Vec<Completion>,
    /// With the workers.
    running: usize,
    crew: Option<Crew>,
}

/// The workers and the way to them and back.
struct Crew {
    jobs: Sender<Request>,
    job_source: Receiver<Request>,
    done: Receiver<Completion>,
    done_sink: Sender<Completion>,
    workers: Vec<JoinHandle<()>>,
}

impl ThreadsQueue {
    pub(super) fn new(file: Arc<HostFile>) -> ThreadsQueue {
        let depth = (file.info.limits.queue_depth as usize).clamp(1, MAX_DEPTH);
        ThreadsQueue {
            file,
            depth,
            pending: VecDeque::new(),
            ready: Vec::new(),
            running: 0,
            crew: None,
        }
    }

    /// Hands pending requests to workers until `keep` are left.
    fn dispatch(&mut self, keep: usize) {
        while self.pending.len() > keep {
            let Some(request) = self.pending.pop_front() else {
                return;
            };
            let crew = self.crew.get_or_insert_with(|| Crew::new(self.depth));
            if crew.workers.len() <= self.running && crew.workers.len() < self.depth {
                crew.hire(&self.file);
            }
            if crew.workers.is_empty() {
                // No threads to be had at all.
                self.ready.push(carry_out(&self.file, request));
                continue;
            }
            crew.jobs
                .send(request)
                .unwrap_or_else(|_| abort("the workers are gone"));
            self.running += 1;
        }
    }

    /// Takes what the workers have finished; waits for one if `wait`.
    fn collect(&mut self, wait: bool) {
        let Some(crew) = self.crew.as_ref().filter(|_| self.running > 0) else {
            return;
        };
        let first = wait.then(|| {
            crew.done
                .recv()
                .unwrap_or_else(|_| abort("the workers are gone"))
        });
        let before = self.ready.len();
        self.ready
            .extend(first.into_iter().chain(crew.done.try_iter()));
        self.running -= self.ready.len() - before;
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
        if self.pending.len() + self.running >= self.depth {
            self.dispatch(0);
            self.collect(self.running >= self.depth);
        }
        self.pending.push_back(request);
    }

    fn kick(&mut self) {
        self.dispatch(0);
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let wait_for = wait_for.min(self.in_flight());
        self.collect(false);
        // One is left for this thread, if it is going to wait anyway.
        self.dispatch(usize::from(self.ready.len() < wait_for));
        while self.ready.len() < wait_for {
            match self.pending.pop_front() {
                Some(request) => self.ready.push(carry_out(&self.file, request)),
                None => self.collect(true),
            }
        }
        self.dispatch(0);
        done.append(&mut self.ready);
    }

    fn in_flight(&self) -> usize {
        self.pending.len() + self.running + self.ready.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

impl Drop for ThreadsQueue {
    fn drop(&mut self) {
        while self.running > 0 {
            self.collect(true);
        }
        if let Some(Crew {
            jobs,
            job_source,
            workers,
            ..
        }) = self.crew.take()
        {
            drop((jobs, job_source));
            for worker in workers {
                let _ = worker.join(); // it aborts rather than panic
            }
        }
    }
}

impl Crew {
    fn new(depth: usize) -> Crew {
        let (jobs, job_source) = bounded(depth);
        let (done_sink, done) = bounded(depth);
        Crew {
            jobs,
            job_source,
            done,
            done_sink,
            workers: Vec::new(),
        }
    }

    /// One worker more, if the system has a thread for us.
    fn hire(&mut self, file: &Arc<HostFile>) {
        let (file, jobs, done) = (
            Arc::clone(file),
            self.job_source.clone(),
            self.done_sink.clone(),
        );
        let work = move || {
            let bomb = AbortOnUnwind("an I/O worker panicked");
            for request in &jobs {
                let sent = done.send(carry_out(&file, request));
                sent.unwrap_or_else(|_| abort("a queue is gone before its requests"));
            }
            std::mem::forget(bomb);
        };
        self.workers.extend(
            thread::Builder::new()
                .name("throughline-io".into())
                .spawn(work),
        );
    }
}

/// Does a request from beginning to end on this thread.
fn carry_out(file: &HostFile, request: Request) -> Completion {
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
