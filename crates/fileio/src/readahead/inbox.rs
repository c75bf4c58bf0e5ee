//! The line of jobs before the threads that read ahead.
//!
//! Invariants:
//! - It is bounded, and nobody waits to be let in: what does not fit is given back at once.
//! - A job that was taken in comes out once, to a thread or to who closes.
//! - Once closed it takes nothing in and lets nobody wait.

use std::collections::VecDeque;

use crate::sync::{Condvar, Mutex};

/// See the module.
pub(crate) struct Inbox<J> {
    line: Mutex<Line<J>>,
    wake: Condvar,
    most: usize,
}

struct Line<J> {
    jobs: VecDeque<J>,
    /// Threads that wait for a job.
    idle: usize,
    closed: bool,
}

impl<J> Inbox<J> {
    /// Of at most `most` jobs in line.
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

    /// Puts a job at the end of the line; gives it back where there is no room.
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

    /// The first job in line, waiting for one; `None` once closed.
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

    /// Whether more jobs are in line than threads wait for one.
    pub(crate) fn is_behind(&self) -> bool {
        let line = self.line.lock();
        line.jobs.len() >= line.idle
    }

    /// Takes nothing in any more. What was in line.
    pub(crate) fn close(&self) -> VecDeque<J> {
        let mut line = self.line.lock();
        line.closed = true;
        let left = std::mem::take(&mut line.jobs);
        drop(line);
        self.wake.notify_all();
        left
    }
}
