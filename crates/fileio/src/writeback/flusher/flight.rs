//! Runs: from dirty blocks to the stream, and from there to the file's mapping.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use throughline_block::{Stream, Written};

use super::super::files::{Key, Place};
use super::super::inbox::Inbox;
use super::super::jobs::{Job, JobId};
use super::super::run::Run;
use super::{Asked, Flusher, Issue};
use crate::cache::{AddressSpace, Running, promote};

/// A run in flight.
pub(super) struct Flight {
    pub(super) run: Run,
    file: Key,
    /// The jobs that the run concerns, and whether they began after it.
    pub(super) jobs: Vec<(JobId, Concern)>,
    /// Prevents a freeze until the run has ended.
    _running: Running,
}

/// How a run concerns a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concern {
    /// Taken after the job began: it writes data that the job covers.
    Counts,
    /// In flight when the job began: its blocks may be dirty again.
    LookAgain,
}

/// Begins work on a file; `None` while it is frozen.
fn begin(inbox: &Inbox, space: &AddressSpace) -> Option<Running> {
    space.begin_background().or_else(|| {
        inbox.want_thaw();
        space.begin_background()
    })
}

impl Flusher {
    /// Takes the first run of dirty blocks in the range and submits it.
    pub(super) fn issue(&mut self, key: Key, range: Range<u64>, most_bytes: u64) -> Issue {
        let Some(file) = self.files.get(key) else {
            return Issue::Clean;
        };
        if self.stream.is_none() {
            match Stream::new(Arc::clone(&self.shared.disk)) {
                Ok(stream) => self.stream = Some(stream),
                Err(error) => return Issue::Failed(error.into()),
            }
        }
        let Some(stream) = &mut self.stream else {
            return Issue::Clean;
        };
        let space = file.host.space();
        let Some(running) = begin(&self.shared.inbox, space) else {
            return Issue::Frozen;
        };
        let (range, most_bytes) = match file.host.whole_bytes() {
            0 => (range, most_bytes),
            whole => (0..u64::MAX, most_bytes.max(whole)),
        };
        let Some(dirty) = space.take_dirty(range, most_bytes) else {
            return Issue::Clean;
        };
        let Range { start, end } = dirty.range;
        self.shared.counting.runs.add(1);
        self.shared.counting.bytes.add(end - start);
        let is_descent = start < file.last_end;
        self.shared.counting.descents.add(u64::from(is_descent));
        file.last_end = end;
        self.last_run += 1;
        let id = self.last_run;
        file.runs.push_back(id);
        let mut flight = Flight {
            run: Run::new(Arc::clone(&file.host), dirty),
            file: key,
            jobs: Vec::new(),
            _running: running,
        };
        for job in &file.jobs {
            let touches = |job: &mut Job| job.range.start < end && start < job.range.end;
            if self.jobs.get(*job).is_some_and(touches) {
                self.jobs.run_begins(*job);
                flight.jobs.push((*job, Concern::Counts));
            }
        }
        flight.run.send(id, &self.shared.disk, stream);
        let has_ended = flight.run.has_ended();
        self.runs.insert(id, flight);
        if has_ended {
            self.finish_ended(key);
        }
        Issue::Issued(end - start, end)
    }

    /// Asks for the space of the kept bytes in the range. A job fails for which there is none.
    pub(super) fn ask(&mut self, id: JobId, key: Key, range: &Range<u64>) -> Asked {
        let Some(host) = self.files.get(key).map(|file| Arc::clone(&file.host)) else {
            return Asked::All;
        };
        if host.space().refused.first_kept(range).is_none() {
            return Asked::All;
        }
        let Some(_running) = begin(&self.shared.inbox, host.space()) else {
            return Asked::Frozen;
        };
        match promote(&host, range) {
            (_, Ok(())) => Asked::All,
            (true, Err(_)) => Asked::Part,
            (false, Err(error)) => {
                self.files.retry(key, error.clone(), Instant::now());
                if let Some(job) = self.jobs.get(id) {
                    job.found_no_space(error);
                }
                Asked::Nothing
            }
        }
    }

    /// Processes completions; waits for one if `wait`.
    pub(super) fn collect(&mut self, wait: bool) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let mut written = std::mem::take(&mut self.written);
        stream.reap(wait, &mut written);
        for Written { cookie, result } in written.drain(..) {
            let Some(flight) = self.runs.get_mut(&cookie) else {
                continue;
            };
            flight.run.piece_ended(result);
            if flight.run.has_ended() {
                let key = flight.file;
                self.finish_ended(key);
            }
        }
        self.written = written;
    }

    /// Finishes the ended runs of a file in the order they were taken, so that the committed size never
    /// covers a run that has not ended.
    fn finish_ended(&mut self, key: Key) {
        while let Some(file) = self.files.get(key)
            && let Some(id) = file.runs.front().copied()
            && self
                .runs
                .get(&id)
                .is_some_and(|flight| flight.run.has_ended())
        {
            file.runs.pop_front();
            if let Some(flight) = self.runs.remove(&id) {
                self.finish(key, flight);
            }
        }
        if self
            .files
            .get(key)
            .is_some_and(|f| f.place == Place::InFlight)
        {
            self.files.put(key, Place::Ready);
        }
        self.forget_clean(key);
    }

    fn finish(&mut self, key: Key, flight: Flight) {
        if let Some(stream) = &mut self.stream {
            stream.submit_open();
        }
        let Flight {
            run,
            jobs,
            _running: running,
            ..
        } = flight;
        let (host, range) = (Arc::clone(&run.host), run.range());
        let outcome = run.finish();
        drop(running);
        let counting = &self.shared.counting;
        counting.commits.add(u64::from(outcome.has_committed));
        match &outcome.result {
            Ok(()) if std::mem::take(&mut self.is_stuck) => {
                host.space().cache().throttle().stuck(None);
            }
            Ok(()) => {}
            Err(error) => {
                counting.errors.add(1);
                self.files.fail(key, error.clone(), Instant::now());
            }
        }
        for (job, concern) in jobs {
            let again = (concern == Concern::LookAgain).then(|| range.clone());
            self.jobs
                .run_ends(job, outcome.result.as_ref().err(), again);
            self.end_job(job);
        }
    }
}
