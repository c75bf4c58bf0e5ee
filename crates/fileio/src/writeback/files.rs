//! Dirty files and the order of their turns: [`Files`].
//!
//! ```text
//!            dirty ─► Ready ─► (its turn) ─► submitted ─► InFlight ─ run end ─► Ready, or forgotten if clean
//!                       ▲                  └► only its tail is dirty ─► Tail ──┐
//!                       ├──────────── age, pressure, a turn's end ─────────────┤
//!                       ├──────────── thaw ─────────────────────────── Frozen ◄┤
//!                       └──────────── time ─────────────────────────── Failed ◄┘
//! ```
//!
//! Tens of thousands of files come, move and go in any order: each step takes time logarithmic in their
//! number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashMap;

use crate::cache::Backing;
use crate::error::Error;

/// Delay before a file whose write-back failed is retried: the first and the maximum. It starts short, so
/// that a single failure of the device is retried before it is reported.
const RETRY: Range<Duration> = Duration::from_millis(100)..Duration::from_secs(30);

/// Identifies a file in this collection; never reused.
pub(super) type Key = u64;

/// What a file is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Queued for background write-back.
    Ready,
    /// Waiting for one of its runs to end: all dirty data is in flight.
    InFlight,
    /// Only the folio being appended to is dirty.
    Tail,
    /// Waiting for a thaw.
    Frozen,
    /// Waiting for its retry.
    Failed,
}

/// A file that is dirty, under write-back, or being waited for.
pub(super) struct File {
    pub(super) host: Arc<dyn Backing>,
    pub(super) place: Place,
    /// Its position in the queue of its place.
    position: u64,
    /// Where background write-back continues.
    pub(super) cursor: u64,
    /// End of the latest run.
    pub(super) last_end: u64,
    /// Nothing in the file has been dirty since before this.
    pub(super) dirty_since: Instant,
    /// Its runs in flight, in the order they were taken.
    pub(super) runs: VecDeque<u64>,
    /// Its pending jobs, outside the turns.
    pub(super) jobs: Vec<u64>,
    pub(super) failure: Option<Failure>,
}

/// A failed write-back.
pub(super) struct Failure {
    pub(super) error: Error,
    retry_at: Instant,
    pause: Duration,
    retried: bool,
    /// A retry failed too: the failure is not transient.
    pub(super) lasts: bool,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Files {
    files: BTreeMap<Key, File>,
    /// By address of the file's space, which the file keeps alive.
    by_space: HashMap<usize, Key>,
    last_key: Key,
    last_position: u64,
    /// By position; the file whose turn it is comes first.
    ready: BTreeMap<u64, Key>,
    tails: BTreeMap<u64, Key>,
    frozen: BTreeMap<u64, Key>,
    failed: BTreeMap<u64, Key>,
    /// Retry times of the failed files, earliest first.
    retries: BTreeSet<(Instant, Key)>,
}

fn address(host: &Arc<dyn Backing>) -> usize {
    std::ptr::from_ref(host.space()).addr()
}

impl Files {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(super) fn get(&mut self, key: Key) -> Option<&mut File> {
        self.files.get_mut(&key)
    }

    pub(super) fn any(&self) -> Option<&File> {
        self.files.first_key_value().map(|(_, file)| file)
    }

    /// All keys, in order of entry. [`Files::forget_clean`] is fastest in this order, and it often is the
    /// order of the files' blocks on the device.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.files.keys().copied().collect()
    }

    /// The file's key. A file not yet known enters, dirty since `dirty_since`.
    pub(super) fn enter(&mut self, host: Arc<dyn Backing>, dirty_since: Instant) -> Key {
        let address = address(&host);
        if let Some(key) = self.by_space.get(&address) {
            return *key;
        }
        self.last_key += 1;
        let file = File {
            host,
            place: Place::Ready,
            position: self.next_position(),
            cursor: 0,
            last_end: 0,
            dirty_since,
            runs: VecDeque::new(),
            jobs: Vec::new(),
            failure: None,
        };
        self.ready.insert(file.position, self.last_key);
        self.files.insert(self.last_key, file);
        self.by_space.insert(address, self.last_key);
        self.last_key
    }

    fn next_position(&mut self) -> u64 {
        self.last_position += 1;
        self.last_position
    }

    /// Forgets the file if there is nothing left to do for it. Returns its host, to be dropped when
    /// everything else is done.
    pub(super) fn forget_clean(&mut self, key: Key) -> Option<Arc<dyn Backing>> {
        let file = self.files.get(&key)?;
        let space = file.host.space();
        let is_needed = || space.dirty_bytes() > 0 || space.refused.is_any();
        let is_busy = !file.runs.is_empty() || !file.jobs.is_empty() || is_needed();
        if is_busy || !space.flushing.delist(is_needed) {
            return None;
        }
        let file = self.files.remove(&key)?;
        if let Some(failure) = &file.failure {
            self.retries.remove(&(failure.retry_at, key));
        }
        self.by_space.remove(&address(&file.host));
        self.take_out(file.place, file.position);
        Some(file.host)
    }

    /// Removes and returns all files.
    pub(super) fn clear(&mut self) -> Vec<Arc<dyn Backing>> {
        let files = std::mem::take(&mut self.files);
        *self = Files {
            last_key: self.last_key,
            ..Files::default()
        };
        files.into_values().map(|file| file.host).collect()
    }

    /// The file whose turn it is.
    pub(super) fn front(&self) -> Option<Key> {
        self.ready.first_key_value().map(|(_, key)| *key)
    }

    /// Number of files queued.
    pub(super) fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Ends the front file's turn.
    pub(super) fn next_turn(&mut self) {
        if let Some((_, key)) = self.ready.pop_first() {
            let position = self.next_position();
            self.ready.insert(position, key);
            if let Some(file) = self.files.get_mut(&key) {
                file.position = position;
            }
        }
    }

    /// Moves a file to a place.
    pub(super) fn put(&mut self, key: Key, place: Place) {
        let position = self.next_position();
        let Some(file) = self.files.get_mut(&key) else {
            return;
        };
        let from = std::mem::replace(&mut file.place, place);
        if from == place {
            return;
        }
        let old = std::mem::replace(&mut file.position, position);
        self.take_out(from, old);
        if let Some(line) = self.line(place) {
            line.insert(position, key);
        }
    }

    /// The queue of a place, by position.
    fn line(&mut self, place: Place) -> Option<&mut BTreeMap<u64, Key>> {
        match place {
            Place::Ready => Some(&mut self.ready),
            Place::Tail => Some(&mut self.tails),
            Place::Frozen => Some(&mut self.frozen),
            Place::Failed => Some(&mut self.failed),
            Place::InFlight => None,
        }
    }

    fn take_out(&mut self, from: Place, position: u64) {
        if let Some(line) = self.line(from) {
            line.remove(&position);
        }
    }

    /// Queues all files of a place again. Returns whether there were any.
    pub(super) fn all_ready(&mut self, from: Place) -> bool {
        if from == Place::Ready {
            return false;
        }
        let keys = self.line(from).map(std::mem::take).unwrap_or_default();
        for key in keys.values() {
            let position = self.next_position();
            if let Some(file) = self.files.get_mut(key) {
                file.place = Place::Ready;
                file.position = position;
                self.ready.insert(position, *key);
            }
        }
        !keys.is_empty()
    }

    /// Records a failed write-back of the file and schedules its retry.
    pub(super) fn fail(&mut self, key: Key, error: Error, now: Instant) {
        self.retry(key, error, now);
        self.put(key, Place::Failed);
    }

    /// Schedules a retry of the file. Unless it has failed, the rest of it keeps its turns.
    pub(super) fn retry(&mut self, key: Key, error: Error, now: Instant) {
        let Some(file) = self.files.get_mut(&key) else {
            return;
        };
        match &mut file.failure {
            Some(failure) => {
                failure.error = error;
                failure.lasts = failure.retried;
            }
            none => {
                self.retries.insert((now + RETRY.start, key));
                *none = Some(Failure {
                    error,
                    retry_at: now + RETRY.start,
                    pause: RETRY.start,
                    retried: false,
                    lasts: false,
                });
            }
        }
    }

    /// Clears the file's failure after everything was written.
    pub(super) fn recover(&mut self, key: Key) {
        if let Some(file) = self.files.get_mut(&key)
            && let Some(failure) = file.failure.take()
        {
            self.retries.remove(&(failure.retry_at, key));
            self.put(key, Place::Ready);
        }
    }

    /// Error of a file that waits for a retry, if any.
    pub(super) fn failure(&self) -> Option<&Error> {
        let (_, key) = self.retries.first()?;
        Some(&self.files.get(key)?.failure.as_ref()?.error)
    }

    /// Number of files that wait for a retry.
    pub(super) fn failed_count(&self) -> usize {
        self.retries.len()
    }

    /// A failure whose retry failed too.
    pub(super) fn lasting_failure(&self) -> Option<&Failure> {
        let failures = self
            .failed
            .values()
            .filter_map(|key| self.files.get(key)?.failure.as_ref());
        failures.into_iter().find(|failure| failure.lasts)
    }

    /// Time of the next retry.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.retries.first().map(|(at, _)| *at)
    }

    /// Files whose retry is due. They stay in place until everything was written; each delay is longer than
    /// the last.
    pub(super) fn retries(&mut self, now: Instant) -> Vec<Key> {
        let mut due = Vec::new();
        while let Some(&(at, key)) = self.retries.first().filter(|(at, _)| *at <= now) {
            self.retries.remove(&(at, key));
            let file = self.files.get_mut(&key);
            let Some(failure) = file.and_then(|file| file.failure.as_mut()) else {
                continue;
            };
            failure.pause = (failure.pause * 2).min(RETRY.end);
            failure.retry_at = now + failure.pause;
            failure.retried = true;
            self.retries.insert((failure.retry_at, key));
            due.push(key);
        }
        due
    }

    /// Files with data that has been dirty for `age`; their age restarts now.
    pub(super) fn aged(&mut self, age: Duration, now: Instant) -> Vec<Key> {
        let mut aged = Vec::new();
        for (key, file) in &mut self.files {
            if now.duration_since(file.dirty_since) >= age {
                file.dirty_since = now;
                aged.push(*key);
            }
        }
        aged
    }
}
