//! The flusher: the thread that writes.
//!
//! Its loop never waits for messages while something is in flight, and never for the device while its queue has room and
//! there is work. What it does first: what somebody waits for; what is old; then files by turns, where much is dirty, or else
//! what streams have left behind.

mod flight;
mod turns;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use throughline_block::{Stream, Written};

use super::Shared;
use super::files::{Files, Key, Place};
use super::inbox::{Inbox, Message};
use super::jobs::{JobId, Jobs, Kind};
use super::reply::Reply;
use crate::cache::Backing;
use crate::error::Error;
use flight::{Concern, Flight};

/// How often the flusher looks for what is old, at least.
const LOOK: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Flusher {
    shared: Arc<Shared>,
    /// Opened when it is needed, so that a device that gives no queue is an error like any other.
    stream: Option<Stream>,
    files: Files,
    jobs: Jobs,
    runs: HashMap<u64, Flight>,
    last_run: u64,
    written: Vec<Written>,
    /// Whose turn it is, and what is left of it in bytes.
    turn: Option<(Key, u64)>,
    /// Background work that memory pressure still asks for, in bytes.
    urge_bytes: u64,
    /// Memory was short, and there was nothing to write that could be.
    is_in_vain: bool,
    /// So many files yet are written with their tails.
    tails_too: usize,
    next_look: Instant,
    /// The throttle was told that nothing gets on.
    is_stuck: bool,
    /// How many files had failed when that was told last.
    failing: usize,
    is_stopping: bool,
}

/// A flusher that panics looks at nothing any more: the next file that becomes dirty has another one started.
struct Unwatched<'a>(&'a Inbox);

impl Drop for Unwatched<'_> {
    fn drop(&mut self) {
        self.0.say_unwatched();
    }
}

/// What became of looking for something to write.
enum Issue {
    /// A run of so many bytes is on its way; it ends at this file byte.
    Issued(u64, u64),
    /// Nothing in the range is dirty that is not on its way.
    Clean,
    /// The file is frozen.
    Frozen,
    /// Nothing can be written.
    Failed(Error),
}

impl Flusher {
    pub(super) fn new(shared: Arc<Shared>) -> Flusher {
        Flusher {
            shared,
            stream: None,
            files: Files::default(),
            jobs: Jobs::default(),
            runs: HashMap::new(),
            last_run: 0,
            written: Vec::new(),
            turn: None,
            urge_bytes: 0,
            is_in_vain: false,
            tails_too: 0,
            next_look: Instant::now(),
            is_stuck: false,
            failing: 0,
            is_stopping: false,
        }
    }

    /// Works until it is told to stop, and what is in flight then has ended.
    pub(super) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let inbox = &shared.inbox;
        let mut is_drowsy = false;
        let _unwatched = Unwatched(inbox);
        loop {
            self.welcome();
            while let Some(message) = inbox.next() {
                self.hear(message);
            }
            if self.is_stopping && self.runs.is_empty() {
                break;
            }
            let has_worked = !self.is_stopping && self.work();
            self.tell_failing();
            if has_worked || !self.runs.is_empty() {
                self.collect(!has_worked);
                if std::mem::take(&mut is_drowsy) {
                    inbox.say_awake();
                }
                continue;
            }
            // Sleeps only if it finds nothing after it has said so.
            if !std::mem::replace(&mut is_drowsy, true) {
                inbox.say_asleep(self.alarm().is_none());
                continue;
            }
            is_drowsy = false;
            self.tell_stuck();
            if let Some(message) = inbox.wait(self.alarm()) {
                self.hear(message);
            }
        }
        self.end();
    }

    /// Takes in what became dirty.
    fn welcome(&mut self) {
        for (host, since) in self.shared.inbox.take_dirtied() {
            let key = self.files.enter(host, since);
            // It may have been flushed before this was read.
            self.forget_clean(key);
        }
    }

    fn hear(&mut self, message: Message) {
        let counting = &self.shared.counting;
        match message {
            Message::Passed(host) => {
                counting.stream_passes.add(1);
                if let Some(range) = host.space().flushing.take_passed() {
                    self.ask(host, Kind::Passed, range, None);
                }
            }
            Message::Start(host) => {
                if let Some(range) = host.space().flushing.take_started() {
                    self.ask(host, Kind::Urgent, range, None);
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
                self.ask(host, Kind::Urgent, range, Some(reply));
            }
            Message::FlushAll(reply) => {
                counting.flushes.add(1);
                // What became dirty before it was sent.
                self.welcome();
                for key in self.files.keys() {
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

    /// A job for a file that may be new here. One that is clean and that nobody waits for is left alone.
    fn ask(
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
        // If it was not listed it is now; if it was, it is here already or the message is on its way.
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

    // ---- what to do next

    /// Does one thing, if there is one and the device has room for it. Whether there was.
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

    /// Whether files are to be written although nobody asks for one.
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
            self.shared.unlooked.store(0, Ordering::Relaxed);
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

    /// One run of the next job of a kind.
    fn do_job(&mut self, kind: Kind) -> bool {
        while let Some(id) = self.jobs.take(kind) {
            let Some(job) = self.jobs.get(id) else {
                continue;
            };
            let (key, insists) = (job.file, job.insists());
            let Some(range) = job.next() else {
                continue;
            };
            let is_failed = self.files.get(key).is_none_or(|f| f.place == Place::Failed);
            let most = self.job_run_bytes(is_failed);
            let issue = match is_failed && !insists {
                // Its retry does all of it.
                true => Issue::Clean,
                false => self.issue(key, range, most),
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
                job.looked(looked);
            }
            self.jobs.put_back(id);
            self.end_job(id);
            if has_worked {
                return true;
            }
        }
        false
    }

    /// Ends a job that is done.
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
        // What failed is gone, as by a truncation: nobody need wait in vain any more.
        if self.is_stuck && self.files.lasting_failure().is_none() {
            self.is_stuck = false;
            host.space().cache().throttle().stuck(None);
        }
    }

    // ---- the end of the work

    /// There is nothing to do and nothing in flight: whoever waits for room waits in vain where a file has failed.
    fn tell_stuck(&mut self) {
        let is_waited_for = std::mem::take(&mut self.is_in_vain) || self.is_wanted();
        if self.is_stuck || !is_waited_for {
            return;
        }
        if let (Some(failure), Some(file)) = (self.files.lasting_failure(), self.files.any()) {
            let throttle = file.host.space().cache().throttle();
            throttle.stuck(Some(failure.error.clone()));
            self.is_stuck = true;
        }
    }

    /// Whether the write-back of files fails, for whoever asks.
    fn tell_failing(&mut self) {
        let failing = self.files.failed_count();
        if failing != self.failing {
            self.failing = failing;
            *self.shared.failing.lock() = self.files.failure().cloned();
        }
    }

    /// When there will be something to do without a message.
    fn alarm(&self) -> Option<Instant> {
        if self.files.is_empty() {
            return None;
        }
        let retry = self.files.next_retry();
        Some(retry.map_or(self.next_look, |at| at.min(self.next_look)))
    }

    /// Lets go of everything. Jobs that are not done end as that.
    fn end(mut self) {
        if let Some(file) = self.files.any().filter(|_| self.is_stuck) {
            file.host.space().cache().throttle().stuck(None);
        }
        let mut hosts = self.files.clear();
        *self.shared.failing.lock() = None;
        let shared = Arc::clone(&self.shared);
        drop(self);
        shared.inbox.say_unwatched();
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
