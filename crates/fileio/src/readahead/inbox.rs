//! The queue of jobs for the readahead threads.
//!
//! Invariants:
//! - It is bounded, and pushing never waits: a job that does not fit is returned at once.
//! - An accepted job is returned once, to a thread or by `close`.
//! - Once closed it accepts nothing and no thread waits.

use std::collections::VecDeque;

use crate::sync::{Condvar, Mutex};

/// See the module documentation.
pub(crate) struct Inbox<J> {
    line: Mutex<Line<J>>,
    wake: Condvar,
    most: usize,
}

struct Line<J> {
    jobs: VecDeque<J>,
    /// Number of threads waiting for a job.
    idle: usize,
    closed: bool,
}

impl<J> Inbox<J> {
    /// A queue of at most `most` jobs.
    pub(crate) fn new(most: usize) -> Inbox<J> {
        Inbox {
            line: Mutex::new(Line {
                jobs: VecDeque::new(),
                idle: 0,
                closed: false,
            }),
            wake: Condvar::new(),
            most,
        }
    }

    /// Appends a job; returns it if the queue is full or closed.
    pub(crate) fn push(&self, job: J) -> Result<(), J> {
        let mut line = self.line.lock();
        if line.closed || line.jobs.len() >= self.most {
            return Err(job);
        }
        line.jobs.push_back(job);
        drop(line);
        self.wake.notify_one();
        Ok(())
    }

    /// Waits for and removes the first job; `None` once closed.
    pub(crate) fn next(&self) -> Option<J> {
        let mut line = self.line.lock();
        loop {
            if line.closed {
                return None;
            }
            if let Some(job) = line.jobs.pop_front() {
                return Some(job);
            }
            line.idle += 1;
            self.wake.wait(&mut line);
            line.idle -= 1;
        }
    }

    /// Whether there are at least as many queued jobs as waiting threads.
    pub(crate) fn is_behind(&self) -> bool {
        let line = self.line.lock();
        line.jobs.len() >= line.idle
    }

    /// Closes the queue and returns the remaining jobs.
    pub(crate) fn close(&self) -> VecDeque<J> {
        let mut line = self.line.lock();
        line.closed = true;
        let left = std::mem::take(&mut line.jobs);
        drop(line);
        self.wake.notify_all();
        left
    }
}
