//! Write-back outside the turns: [`Jobs`].
//!
//! A job is one ascending pass over ranges of a file, so it ends even if other threads keep dirtying the
//! file. A job with a waiter ends when everything that was dirty or under write-back in its range at its
//! start is on the device and committed, or has failed. It counts all runs that touch its range, its own and
//! others'. Blocks that were under write-back at its start may have been dirtied again before that, so when
//! such a run ends, the job looks at its range once more.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::files::Key;
use super::ranges::Ranges;
use super::reply::Reply;
use foldhash::HashMap;

use crate::error::Error;

/// A job ends its pass after this many failed runs.
const MAX_FAILURES: u32 = 4;

/// Priority class of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Requested by a thread, which may wait for it.
    Urgent,
    /// A stream has passed the range.
    Passed,
    /// It has been dirty for long.
    Aged,
    /// It failed before.
    Retry,
}

pub(super) type JobId = u64;

/// One pass over a file.
pub(super) struct Job {
    pub(super) file: Key,
    pub(super) kind: Kind,
    pub(super) range: Range<u64>,
    /// Ranges not yet looked at.
    scan: Ranges,
    /// Runs that touch the range and have not ended.
    pending: usize,
    failures: u32,
    error: Option<Error>,
    reply: Option<Arc<Reply>>,
}

impl Job {
    /// The range to look at next.
    pub(super) fn next(&self) -> Option<Range<u64>> {
        self.scan.first().cloned()
    }

    /// Records that everything before `at` of the first range has been looked at; `None`: all of it. Streams
    /// in one file take turns.
    pub(super) fn looked(&mut self, at: Option<u64>) {
        self.scan.advance(at, self.kind == Kind::Passed);
    }

    /// Adds `range` to the pass.
    fn also(&mut self, range: Range<u64>) {
        self.range = self.range.start.min(range.start)..self.range.end.max(range.end);
        self.scan.add(range);
    }

    /// Whether the job also tries a file that has failed.
    pub(super) fn tries_failed(&self) -> bool {
        matches!(self.kind, Kind::Urgent | Kind::Retry)
    }

    /// Whether the job asks for the space of kept bytes, and fails without it. It goes on after that, as the
    /// rest can be written.
    pub(super) fn asks(&self) -> bool {
        let is_to = self.kind == Kind::Retry || self.reply.as_ref().is_some_and(|reply| reply.asks);
        is_to && self.error.is_none()
    }

    /// There is no space for kept bytes.
    pub(super) fn found_no_space(&mut self, error: Error) {
        self.error = self.error.take().or(Some(error));
    }

    /// Ends the pass: the job only waits for what is in flight.
    pub(super) fn give_up(&mut self, error: Option<Error>) {
        self.scan.clear();
        self.error = self.error.take().or(error);
    }

    fn has_ended(&self) -> bool {
        self.scan.is_empty() && self.pending == 0
    }
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Jobs {
    jobs: HashMap<JobId, Job>,
    last_id: JobId,
    /// Jobs with ranges to look at, by [`Kind`].
    lines: [VecDeque<JobId>; 4],
    /// Jobs whose file is frozen.
    frozen: Vec<JobId>,
}

impl Jobs {
    /// Adds a job over `range` of the file that waits for `runs` runs already in flight.
    pub(super) fn add(
        &mut self,
        file: Key,
        kind: Kind,
        range: Range<u64>,
        runs: usize,
        reply: Option<Arc<Reply>>,
    ) -> JobId {
        self.last_id += 1;
        let mut scan = Ranges::default();
        scan.add(range.clone());
        let job = Job {
            file,
            kind,
            scan,
            range,
            pending: runs,
            failures: 0,
            error: None,
            reply,
        };
        self.jobs.insert(self.last_id, job);
        self.lines[kind as usize].push_back(self.last_id);
        self.last_id
    }

    /// Adds `range` to the first of `jobs` that has this kind and no waiter. False if there is none.
    pub(super) fn add_to(&mut self, jobs: &[JobId], kind: Kind, range: &Range<u64>) -> bool {
        for id in jobs {
            let is_such = |job: &&mut Job| job.kind == kind && job.reply.is_none();
            if let Some(job) = self.jobs.get_mut(id).filter(is_such) {
                let was_idle = job.scan.is_empty();
                job.also(range.clone());
                if was_idle {
                    self.lines[kind as usize].push_back(*id);
                }
                return true;
            }
        }
        false
    }

    /// Whether a job of the kind is queued.
    pub(super) fn is_any(&self, kind: Kind) -> bool {
        !self.lines[kind as usize].is_empty()
    }

    pub(super) fn get(&mut self, id: JobId) -> Option<&mut Job> {
        self.jobs.get_mut(&id)
    }

    /// Takes the next job of a kind from the queue.
    pub(super) fn take(&mut self, kind: Kind) -> Option<JobId> {
        self.lines[kind as usize].pop_front()
    }

    /// Queues a taken job again if it has ranges left.
    pub(super) fn put_back(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(&id)
            && !job.scan.is_empty()
        {
            self.lines[job.kind as usize].push_back(id);
        }
    }

    /// Puts a taken job aside until its file thaws.
    pub(super) fn put_frozen(&mut self, id: JobId) {
        self.frozen.push(id);
    }

    /// Queues the jobs put aside, because files have thawed.
    pub(super) fn thaw(&mut self) {
        for id in std::mem::take(&mut self.frozen) {
            self.put_back(id);
        }
    }

    /// Counts a new run that touches the job's range.
    pub(super) fn run_begins(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.pending += 1;
        }
    }

    /// Counts the end of a run that touches the job's range. `again`: the run was in flight when the job
    /// began.
    pub(super) fn run_ends(&mut self, id: JobId, error: Option<&Error>, again: Option<Range<u64>>) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.pending -= 1;
        if let Some(range) = again {
            // Even if it failed: this job's own attempt counts.
            let range = range.start.max(job.range.start)..range.end.min(job.range.end);
            if job.error.is_none() || job.failures < MAX_FAILURES {
                let was_idle = job.scan.is_empty();
                job.scan.add(range);
                if was_idle {
                    self.lines[job.kind as usize].push_back(id);
                }
            }
        } else if let Some(error) = error {
            job.failures += 1;
            job.error.get_or_insert_with(|| error.clone());
            if job.failures >= MAX_FAILURES {
                job.scan.clear();
            }
        }
    }

    /// Ends the job if it is done: sends the reply, and returns the file and whether everything was written.
    pub(super) fn end(&mut self, id: JobId) -> Option<Ended> {
        if !self.jobs.get(&id)?.has_ended() {
            return None;
        }
        let job = self.jobs.remove(&id)?;
        let ended = Ended {
            file: job.file,
            is_whole: job.error.is_none() && job.range == (0..u64::MAX),
        };
        if let Some(reply) = job.reply {
            reply.end(job.error.map_or(Ok(()), Err));
        }
        Some(ended)
    }
}

/// A finished job.
pub(super) struct Ended {
    pub(super) file: Key,
    /// The whole file was written without an error.
    pub(super) is_whole: bool,
}
