//! The flusher thread.
//!
//! Its loop never waits for messages while something is in flight, and never for the device while the queue
//! has room and there is work. Priority: what a thread waits for; what is old; retries; then, above the
//! background threshold, files by turns; then what streams have passed.

mod flight;
mod turns;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use throughline_block::{Stream, Written};

use super::Shared;
use super::files::{Files, Key, Place};
use super::inbox::{Inbox, Message};
use super::jobs::{JobId, Jobs, Kind};
use super::reply::Reply;
use crate::cache::Backing;
use crate::error::Error;
use flight::{Concern, Flight};

/// Maximum interval between looks for old data.
const LOOK: Duration = Duration::from_secs(5);

/// See the module documentation.
pub(super) struct Flusher {
    shared: Arc<Shared>,
    /// Opened on first use, so that a device without a queue is an ordinary error.
    stream: Option<Stream>,
    files: Files,
    jobs: Jobs,
    runs: HashMap<u64, Flight>,
    last_run: u64,
    written: Vec<Written>,
    /// The file whose turn it is, and the rest of its chunk in bytes.
    turn: Option<(Key, u64)>,
    /// Background write-back that memory pressure still requires, in bytes.
    urge_bytes: u64,
    /// Memory was short, but nothing could be written.
    found_nothing: bool,
    /// Number of visits that still include the tail of the file.
    tails_too: usize,
    next_look: Instant,
    /// The throttle was given the error that stalls write-back.
    is_stuck: bool,
    /// Number of failed files at the last report.
    failing: usize,
    is_stopping: bool,
}

/// Reports on a panic that no flusher is running: the next dirty file starts a new one.
struct Unwatched<'a>(&'a Inbox);

impl Drop for Unwatched<'_> {
    fn drop(&mut self) {
        self.0.set_unwatched();
    }
}

/// Result of looking for something to write.
enum Issue {
    /// A run of this many bytes was submitted; it ends at this offset of the file.
    Issued(u64, u64),
    /// Nothing in the range is dirty, except what is already in flight.
    Clean,
    /// The file is frozen.
    Frozen,
    /// Writing is not possible.
    Failed(Error),
}

/// What was found when asking for the space of the kept bytes of a range.
enum Asked {
    /// None are kept any more.
    All,
    /// Some got it, and others are still kept.
    Part,
    /// There is none.
    Nothing,
    /// The file is frozen.
    Frozen,
}

impl Flusher {
    pub(super) fn new(shared: Arc<Shared>) -> Flusher {
        Flusher {
            shared,
            stream: None,
            files: Files::default(),
            jobs: Jobs::default(),
            runs: HashMap::default(),
            last_run: 0,
            written: Vec::new(),
            turn: None,
            urge_bytes: 0,
            found_nothing: false,
            tails_too: 0,
            next_look: Instant::now(),
            is_stuck: false,
            failing: 0,
            is_stopping: false,
        }
    }

    /// Runs until it is stopped and everything in flight has ended.
    pub(super) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let inbox = &shared.inbox;
        let mut is_about_to_sleep = false;
        let _unwatched = Unwatched(inbox);
        loop {
            self.enter_dirtied();
            while let Some(message) = inbox.next() {
                self.handle(message);
            }
            if self.is_stopping && self.runs.is_empty() {
                break;
            }
            let has_worked = !self.is_stopping && self.work();
            self.publish_failure();
            if has_worked || !self.runs.is_empty() {
                self.collect(!has_worked);
                if std::mem::take(&mut is_about_to_sleep) {
                    inbox.set_awake();
                }
                continue;
            }
            // Sleep only if nothing was found after announcing it.
            if !std::mem::replace(&mut is_about_to_sleep, true) {
                inbox.set_asleep(self.alarm().is_none());
                continue;
            }
            is_about_to_sleep = false;
            self.report_stuck();
            if let Some(message) = inbox.wait(self.alarm()) {
                self.handle(message);
            }
        }
        self.end();
    }

    /// Enters the files that became dirty.
    fn enter_dirtied(&mut self) {
        for (host, since) in self.shared.inbox.take_dirtied() {
            let key = self.files.enter(host, since);
            // The file may have been flushed meanwhile.
            self.forget_clean(key);
        }
    }

    fn handle(&mut self, message: Message) {
        let counting = &self.shared.counting;
        match message {
            Message::Passed(host) => {
                counting.stream_passes.add(1);
                for range in host.space().flushing.take_passed() {
                    self.request(Arc::clone(&host), Kind::Passed, range, None);
                }
            }
            Message::Start(host) => {
                for range in host.space().flushing.take_started() {
                    self.request(Arc::clone(&host), Kind::Urgent, range, None);
                }
            }
            Message::Failed(host, error) => {
                if host.space().dirty_bytes() > 0 {
                    host.space().flushing.enlist();
                    let now = Instant::now();
                    let key = self.files.enter(host, now);
                    self.files.fail(key, error, now);
                }
            }
            Message::Flush(host, range, reply) => {
                counting.flushes.add(1);
                self.request(host, Kind::Urgent, range, Some(reply));
            }
            Message::FlushAll(reply) => {
                counting.flushes.add(1);
                // Including what became dirty before the message was sent.
                self.enter_dirtied();
                for key in self.files.keys() {
                    if let Some(why) = self
                        .files
                        .get(key)
                        .and_then(|f| f.host.space().refused.lost())
                    {
                        reply.part();
                        reply.end(Err(why));
                    }
                    reply.part();
                    self.add_job(key, Kind::Urgent, 0..u64::MAX, Some(Arc::clone(&reply)));
                }
                reply.end(Ok(()));
            }
            Message::Pressure => {
                counting.pressures.add(1);
                self.urge_bytes = self.chunk_bytes();
            }
            Message::Thawed => self.thaw(),
            Message::Wake => counting.wakes.add(1),
            Message::Look => self.next_look = Instant::now(),
            Message::Stop => self.is_stopping = true,
        }
    }

    fn thaw(&mut self) {
        self.files.all_ready(Place::Frozen);
        self.jobs.thaw();
    }

    /// Adds a job for a file that may be unknown. Ignores clean files, after answering a waiting thread.
    fn request(
        &mut self,
        host: Arc<dyn Backing>,
        kind: Kind,
        range: Range<u64>,
        reply: Option<Arc<Reply>>,
    ) {
        let space = host.space();
        if !space.is_dirty(range.clone()) {
            if let Some(reply) = reply {
                reply.end(Ok(()));
            }
            return;
        }
        // If the file was not listed it is now; if it was, it is already known or a message is queued.
        space.flushing.enlist();
        let key = self.files.enter(host, Instant::now());
        self.add_job(key, kind, range, reply);
    }

    fn add_job(&mut self, key: Key, kind: Kind, range: Range<u64>, reply: Option<Arc<Reply>>) {
        let Some(file) = self.files.get(key) else {
            return;
        };
        let is_waited_for = reply.is_some();
        if !is_waited_for && self.jobs.add_to(&file.jobs, kind, &range) {
            return;
        }
        let touching = |flight: &Flight| {
            let other = flight.run.range();
            is_waited_for && other.start < range.end && range.start < other.end
        };
        let in_flight: Vec<u64> = file
            .runs
            .iter()
            .filter(|id| self.runs.get(id).is_some_and(touching))
            .copied()
            .collect();
        let id = self.jobs.add(key, kind, range, in_flight.len(), reply);
        file.jobs.push(id);
        for run in in_flight {
            if let Some(flight) = self.runs.get_mut(&run) {
                flight.jobs.push((id, Concern::LookAgain));
            }
        }
    }

    // ---- choosing the next work

    /// Submits one run, if there is one and the device has room. Returns whether it did.
    fn work(&mut self) -> bool {
        self.look_at_clock();
        if self.stream.as_ref().is_some_and(Stream::is_full) {
            return false;
        }
        self.do_job(Kind::Urgent)
            || self.do_job(Kind::Aged)
            || self.do_job(Kind::Retry)
            || (self.is_wanted() && self.background())
            || self.do_job(Kind::Passed)
    }

    /// Whether background write-back is required.
    fn is_wanted(&self) -> bool {
        let file = self.files.any();
        file.is_some_and(|file| {
            self.urge_bytes > 0 || file.host.space().cache().throttle().over_background()
        })
    }

    fn look_at_clock(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let now = Instant::now();
        let age = self.shared.age();
        let look = (age / 4).clamp(Duration::from_millis(1), LOOK);
        self.next_look = self.next_look.min(now + look);
        if now >= self.next_look {
            self.next_look = now + look;
            self.shared
                .own_flushes_since_look
                .store(0, Ordering::Relaxed);
            self.thaw();
            for key in self.files.keys() {
                self.forget_clean(key);
            }
            for key in self.files.aged(age, now) {
                self.shared.counting.aged.add(1);
                self.add_job(key, Kind::Aged, 0..u64::MAX, None);
            }
        }
        for key in self.files.retries(now) {
            self.shared.counting.retries.add(1);
            self.add_job(key, Kind::Retry, 0..u64::MAX, None);
        }
    }

    /// Submits one run of the next job of a kind.
    fn do_job(&mut self, kind: Kind) -> bool {
        while let Some(id) = self.jobs.take(kind) {
            let Some(job) = self.jobs.get(id) else {
                continue;
            };
            let (key, tries_failed, asks) = (job.file, job.tries_failed(), job.asks());
            let Some(range) = job.next() else {
                // It was for an empty range, or has been given up.
                self.end_job(id);
                continue;
            };
            let is_failed = self.files.get(key).is_none_or(|f| f.place == Place::Failed);
            let most = self.job_run_bytes(is_failed);
            // First: kept bytes before the run that is issued next would be passed over.
            let asked = match asks {
                true => self.ask(id, key, &range),
                false => Asked::All,
            };
            let issue = match (is_failed && !tries_failed, &asked) {
                // Its retry covers the range.
                (true, _) => Issue::Clean,
                (_, Asked::Frozen) => Issue::Frozen,
                _ => self.issue(key, range.clone(), most),
            };
            let (looked, has_worked) = match issue {
                Issue::Issued(_, end) => (Some(end), true),
                Issue::Clean => (None, false),
                Issue::Frozen => {
                    self.jobs.put_frozen(id);
                    continue;
                }
                Issue::Failed(error) => {
                    self.files.fail(key, error.clone(), Instant::now());
                    if let Some(job) = self.jobs.get(id) {
                        job.give_up(Some(error));
                    }
                    (None, false)
                }
            };
            if let Some(job) = self.jobs.get(id) {
                // What is still kept may find space once this run has ended.
                job.looked(match asked {
                    Asked::Part => Some(range.start),
                    _ => looked,
                });
            }
            self.jobs.put_back(id);
            self.end_job(id);
            if has_worked {
                return true;
            }
        }
        false
    }

    /// Ends a job if it is done.
    fn end_job(&mut self, id: JobId) {
        let Some(ended) = self.jobs.end(id) else {
            return;
        };
        if let Some(file) = self.files.get(ended.file) {
            file.jobs.retain(|job| *job != id);
        }
        if ended.is_whole {
            self.files.recover(ended.file);
        }
        self.forget_clean(ended.file);
    }

    fn forget_clean(&mut self, key: Key) {
        let Some(host) = self.files.forget_clean(key) else {
            return;
        };
        // The failed blocks are gone, for example by a truncation: waiting is no longer pointless.
        if self.is_stuck && self.files.lasting_failure().is_none() {
            self.is_stuck = false;
            host.space().cache().throttle().stuck(None);
        }
    }

    // ---- idle and end

    /// Called when there is nothing to do and nothing in flight: if a file has failed, threads waiting for
    /// room get its error.
    fn report_stuck(&mut self) {
        let is_waited_for = std::mem::take(&mut self.found_nothing) || self.is_wanted();
        if self.is_stuck || !is_waited_for {
            return;
        }
        let Some(file) = self.files.any() else {
            return;
        };
        let throttle = file.host.space().cache().throttle();
        let failure = match self.files.lasting_failure() {
            Some(failure) => Some(&failure.error),
            None if throttle.keeps_too_much() => self.files.failure(),
            None => None,
        };
        if let Some(error) = failure {
            throttle.stuck(Some(error.clone()));
            self.is_stuck = true;
        }
    }

    /// Publishes the current failure for [`super::Writeback::failing`].
    fn publish_failure(&mut self) {
        let failing = self.files.failed_count();
        if failing != self.failing {
            self.failing = failing;
            *self.shared.failing.lock() = self.files.failure().cloned();
        }
    }

    /// Time of the next work that needs no message.
    fn alarm(&self) -> Option<Instant> {
        if self.files.is_empty() {
            return None;
        }
        let retry = self.files.next_retry();
        Some(retry.map_or(self.next_look, |at| at.min(self.next_look)))
    }

    /// Releases everything. Unfinished jobs end with an error.
    fn end(mut self) {
        if let Some(file) = self.files.any().filter(|_| self.is_stuck) {
            file.host.space().cache().throttle().stuck(None);
        }
        let mut hosts = self.files.clear();
        *self.shared.failing.lock() = None;
        let shared = Arc::clone(&self.shared);
        drop(self);
        shared.inbox.set_unwatched();
        let dirtied = shared.inbox.take_dirtied();
        hosts.extend(dirtied.into_iter().map(|(host, _)| host));
        while let Some(message) = shared.inbox.next() {
            if let Message::Passed(host) | Message::Start(host) | Message::Failed(host, _) = message
            {
                host.space().flushing.take_passed();
                host.space().flushing.take_started();
                hosts.push(host);
            }
        }
        for host in hosts {
            host.space().flushing.delist(|| false);
        }
    }
}
