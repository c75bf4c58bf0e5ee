//! The flusher: the thread that writes.
//!
//! Its loop never waits for messages while something is in flight, and never for the device while its queue has room and
//! there is work. What it does first: what somebody waits for; what is old; then files by turns, where much is dirty, or else
//! what streams have left behind.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use throughline_block::{Stream, Written};

use super::files::{Files, Key, Place};
use super::inbox::Message;
use super::jobs::{JobId, Jobs, Kind};
use super::reply::Reply;
use super::run::{Concern, Run};
use super::{BEHIND_BYTES, Shared};
use crate::cache::Backing;
use crate::error::Error;

/// A run is at least so long, where so much is dirty, and at most.
const RUN_BYTES: Range<u64> = 4 << 20..32 << 20;

/// With a limit of dirty memory so small that a run of [`RUN_BYTES`] would be much of it, at least.
const LEAST_RUN_BYTES: u64 = 64 << 10;

/// A run of a file that failed, at most: what can be written is not kept from it for long by what cannot.
const FAILED_RUN_BYTES: u64 = 256 << 10;

/// How often the flusher looks for what is old, at least.
const LOOK: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Flusher {
    shared: Arc<Shared>,
    /// Opened when it is needed, so that a device that gives no queue is an error like any other.
    stream: Option<Stream>,
    files: Files,
    jobs: Jobs,
    runs: HashMap<u64, Run>,
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
    is_stopping: bool,
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
            is_stopping: false,
        }
    }

    /// Works until it is told to stop, and what is in flight then has ended.
    pub(super) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let inbox = &shared.inbox;
        let mut is_drowsy = false;
        loop {
            while let Some(message) = inbox.next() {
                self.hear(message);
            }
            if self.is_stopping && self.runs.is_empty() {
                break;
            }
            let has_worked = !self.is_stopping && self.work();
            if has_worked || !self.runs.is_empty() {
                self.collect(!has_worked);
                if std::mem::take(&mut is_drowsy) {
                    inbox.say_awake();
                }
                continue;
            }
            // Sleeps only if it finds nothing after it has said so.
            if !std::mem::replace(&mut is_drowsy, true) {
                inbox.say_asleep();
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

    fn hear(&mut self, message: Message) {
        let counting = &self.shared.counting;
        match message {
            Message::Dirtied(host) => {
                let key = self.files.enter(host);
                // It may have been flushed before this was read.
                self.forget_clean(key);
            }
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
            Message::Flush(host, range, reply) => {
                counting.flushes.add(1);
                self.ask(host, Kind::Urgent, range, Some(reply));
            }
            Message::FlushAll(reply) => {
                counting.flushes.add(1);
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
        let key = self.files.enter(host);
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
        let touching = |run: &Run| {
            let other = run.range();
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
            if let Some(run) = self.runs.get_mut(&run) {
                run.jobs.push((id, Concern::LookAgain));
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

    /// One run of the file whose turn it is.
    fn background(&mut self) -> bool {
        loop {
            for _ in 0..self.files.ready_count() {
                let Some(key) = self.files.front() else {
                    break;
                };
                let left = match self.turn {
                    Some((of, left)) if of == key => left,
                    _ => self.chunk_bytes(),
                };
                match self.visit(key, left.min(self.run_bytes())) {
                    Issue::Issued(bytes, end) => {
                        self.issued_in_turn(key, left, bytes, end);
                        return true;
                    }
                    Issue::Clean => self.end_turn(key, None),
                    Issue::Frozen => self.end_turn(key, Some(Place::Frozen)),
                    Issue::Failed(error) => self.files.fail(key, error, Instant::now()),
                }
                self.tails_too = self.tails_too.saturating_sub(1);
            }
            // What is being appended to is written too rather than leaving the device without work.
            if !self.runs.is_empty() || !self.files.all_ready(Place::Tail) {
                break;
            }
            self.tails_too = self.files.ready_count();
        }
        self.is_in_vain |= std::mem::take(&mut self.urge_bytes) > 0;
        false
    }

    fn issued_in_turn(&mut self, key: Key, left: u64, bytes: u64, end: u64) {
        self.urge_bytes = self.urge_bytes.saturating_sub(bytes);
        if self.turn.is_none_or(|(of, _)| of != key) {
            self.shared.counting.turns.add(1);
        }
        if let Some(file) = self.files.get(key) {
            file.cursor = end;
        }
        self.turn = Some((key, left.saturating_sub(bytes)));
        if bytes >= left {
            self.turn = None;
            self.tails_too = self.tails_too.saturating_sub(1);
            if self.files.front() == Some(key) {
                self.files.next_turn();
            }
            self.files.all_ready(Place::Tail);
        }
    }

    /// The file has nothing to write at the moment.
    fn end_turn(&mut self, key: Key, place: Option<Place>) {
        let Some(file) = self.files.get(key) else {
            return;
        };
        let place = place.unwrap_or(match file.runs.is_empty() {
            true => Place::Tail,
            false => Place::InFlight,
        });
        self.files.put(key, place);
        self.forget_clean(key);
    }

    /// Looks for a run of a file in its turn: from where the last one ended, round the file, and round its tail.
    fn visit(&mut self, key: Key, most_bytes: u64) -> Issue {
        let Some(file) = self.files.get(key) else {
            return Issue::Clean;
        };
        let from = file.cursor;
        let tail = file.host.space().append_tail();
        let tail = match self.tails_too {
            0 => tail.unwrap_or(u64::MAX..u64::MAX),
            _ => u64::MAX..u64::MAX,
        };
        for half in [from..u64::MAX, 0..from] {
            let before = half.start..half.end.min(tail.start);
            let behind = half.start.max(tail.end)..half.end;
            for range in [before, behind] {
                if range.start >= range.end {
                    continue;
                }
                match self.issue(key, range, most_bytes) {
                    Issue::Clean => {}
                    other => return other,
                }
            }
        }
        Issue::Clean
    }

    // ---- runs

    /// Takes the first run of dirty blocks in the range and sends it on its way.
    fn issue(&mut self, key: Key, range: Range<u64>, most_bytes: u64) -> Issue {
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
        let running = space.begin_background().or_else(|| {
            self.shared.inbox.want_thaw();
            space.begin_background()
        });
        let Some(running) = running else {
            return Issue::Frozen;
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
        let mut run = Run::new(key, Arc::clone(&file.host), dirty, running);
        for job in &file.jobs {
            let touches =
                |job: &mut super::jobs::Job| job.range.start < end && start < job.range.end;
            if self.jobs.get(*job).is_some_and(touches) {
                self.jobs.run_begins(*job);
                run.jobs.push((*job, Concern::Counts));
            }
        }
        run.send(id, &self.shared.disk, stream);
        let has_ended = run.has_ended();
        self.runs.insert(id, run);
        if has_ended {
            self.settle_ended(key);
        }
        Issue::Issued(end - start, end)
    }

    /// Takes what the device has done; waits for it if there is nothing better to do.
    fn collect(&mut self, wait: bool) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let mut written = std::mem::take(&mut self.written);
        stream.reap(wait, &mut written);
        for Written { cookie, result } in written.drain(..) {
            let Some(run) = self.runs.get_mut(&cookie) else {
                continue;
            };
            run.piece_ended(result);
            if run.has_ended() {
                let key = run.file;
                self.settle_ended(key);
            }
        }
        self.written = written;
    }

    /// Settles the runs of a file that have ended, in the order in which they were taken: so the file's size does not go
    /// ahead of what was taken before.
    fn settle_ended(&mut self, key: Key) {
        while let Some(file) = self.files.get(key)
            && let Some(id) = file.runs.front().copied()
            && self.runs.get(&id).is_some_and(Run::has_ended)
        {
            file.runs.pop_front();
            if let Some(run) = self.runs.remove(&id) {
                self.settle(key, run);
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

    fn settle(&mut self, key: Key, mut run: Run) {
        if let Some(stream) = &mut self.stream {
            stream.submit_open();
        }
        let (host, range) = (Arc::clone(&run.host), run.range());
        let jobs = std::mem::take(&mut run.jobs);
        let outcome = run.settle();
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
        let mut hosts = self.files.clear();
        let shared = Arc::clone(&self.shared);
        drop(self);
        while let Some(message) = shared.inbox.next() {
            if let Message::Dirtied(host) | Message::Passed(host) | Message::Start(host) = message {
                host.space().flushing.take_passed();
                host.space().flushing.take_started();
                hosts.push(host);
            }
        }
        for host in hosts {
            host.space().flushing.delist(|| false);
        }
    }

    // ---- sizes

    fn chunk_bytes(&self) -> u64 {
        let file = self.files.any();
        let chunk = file.map(|file| file.host.space().cache().throttle().chunk_bytes());
        chunk.unwrap_or(RUN_BYTES.start).max(1)
    }

    /// The longest run of a job.
    fn job_run_bytes(&self, is_failed: bool) -> u64 {
        let most = self.run_bytes();
        if is_failed {
            return most.min(FAILED_RUN_BYTES);
        }
        // Where somebody else waits he has his turn soon.
        match self.jobs.is_any(Kind::Urgent) {
            true => most.min(RUN_BYTES.start),
            false => most,
        }
    }

    /// The longest run: a part of a chunk, so that what a slow device has done is clean and counted soon, and a part of what
    /// may be dirty at all, so that several are in flight and others become dirty meanwhile.
    fn run_bytes(&self) -> u64 {
        let Some(file) = self.files.any() else {
            return RUN_BYTES.start;
        };
        let throttle = file.host.space().cache().throttle();
        let (chunk, limit) = (throttle.chunk_bytes(), throttle.limit_bytes());
        let part = (limit / 8).max(LEAST_RUN_BYTES);
        let behind = (chunk / 50).clamp(BEHIND_BYTES, RUN_BYTES.end / 2);
        let behind_bytes = &self.shared.behind_bytes;
        behind_bytes.store(behind.min(part), Ordering::Relaxed);
        (chunk / 4).clamp(RUN_BYTES.start, RUN_BYTES.end).min(part)
    }
}
