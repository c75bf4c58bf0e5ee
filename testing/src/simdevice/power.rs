//! [`PowerDevice`]: a device in memory with a volatile write cache that records every request in order.
//!
//! Invariants:
//! - A request is *completed* when its submitter has reaped it, not before: only then may the submitter rely
//!   on it.
//! - The seed determines the order of completions and how late they come, as far as the submitter's waits
//!   allow.
//! - Its blocks have 512 bytes: longer writes may be torn.
//! - Parts of it ([`PowerDevice::part`]) are devices of their own that lose power together: a flush of one
//!   makes nothing durable in another.
//! - A flush may fail ([`PowerDevice::fail_flush`]): the device then drops what it has not stored, once, and
//!   works on. Flushes that others make meanwhile succeed before the failure is reported, if there are any.
//! - While it runs, reads return what was written. Its contents after a power loss are determined by the
//!   [`Record`].

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use throughline_device::{
    BlockDevice, Completion, DeviceInfo, DeviceKind, Limits, Op, Queue, Request,
};

use super::image::Image;
use super::record::{Change, Event, Record};

/// How often a failure that is not yet reported lets other threads go on: long enough for one that is
/// flushing, or about to.
const MOMENT: usize = 20_000;

/// A device that can lose power at any moment.
pub struct PowerDevice {
    info: DeviceInfo,
    base: Image,
    state: Arc<Mutex<State>>,
}

struct State {
    now: Image,
    events: Vec<Event>,
    random: fastrand::Rng,
    /// Flushes until one fails.
    until_failure: Option<u64>,
    /// It has failed, and dropped what was not stored.
    has_failed: bool,
    /// Another flush has succeeded since then.
    is_flushed_since: bool,
}

impl PowerDevice {
    /// A device with `base` durably on it. The seed determines the order of completions.
    pub fn new(base: Image, seed: u64) -> PowerDevice {
        let info = DeviceInfo {
            name: "a device that may lose power".into(),
            kind: DeviceKind::Memory,
            engine: "memory",
            direct: true,
            read_only: false,
            limits: Limits {
                physical_block_bytes: 512,
                ..Limits::default()
            },
        };
        let state = State {
            now: base.clone(),
            events: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            until_failure: None,
            has_failed: false,
            is_flushed_since: false,
        };
        PowerDevice {
            info,
            base,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Number of events so far: a position in the [`Record`].
    pub fn position(&self) -> usize {
        self.state.lock().events.len()
    }

    /// As [`PowerDevice::position`], but later than every earlier position: calls that returned before this
    /// one had their effects before it, and later calls have theirs after it.
    pub fn mark(&self) -> usize {
        let mut state = self.state.lock();
        state.events.push(Event::Marked);
        state.events.len()
    }

    /// The flush after `flushes` more fails, and what is not durable then never will be.
    pub fn fail_flush(&self, flushes: u64) {
        self.state.lock().until_failure = Some(flushes);
    }

    /// Whether the flush has failed that [`PowerDevice::fail_flush`] chose.
    pub fn has_failed(&self) -> bool {
        self.state.lock().has_failed
    }

    /// The record so far.
    pub fn record(&self) -> Record {
        let events = self.state.lock().events.clone();
        Record::new(self.base.clone(), events)
    }

    /// A range of it, as a device of its own. (Such as a volume, and the journal that is on another device.)
    ///
    /// # Panics
    /// If it is not inside the device.
    pub fn part(&self, range: Range<u64>) -> PowerPart {
        assert!(range.start <= range.end && range.end <= self.len_bytes());
        PowerPart {
            info: self.info.clone(),
            range,
            state: Arc::clone(&self.state),
        }
    }

    /// The current contents, as reads return them.
    pub fn contents(&self) -> Image {
        self.state.lock().now.clone()
    }
}

impl BlockDevice for PowerDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len_bytes(&self) -> u64 {
        self.base.len_bytes()
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        self.part(0..self.len_bytes()).open_queue()
    }
}

/// A range of a [`PowerDevice`], as a device of its own.
pub struct PowerPart {
    info: DeviceInfo,
    range: Range<u64>,
    state: Arc<Mutex<State>>,
}

impl BlockDevice for PowerPart {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(PowerQueue {
            limits: self.info.limits,
            range: self.range.clone(),
            state: Arc::clone(&self.state),
            waiting: Vec::new(),
        }))
    }
}

struct PowerQueue {
    limits: Limits,
    /// What the requests are for; their offsets begin at its start.
    range: Range<u64>,
    state: Arc<Mutex<State>>,
    /// Carried out but not yet reported; with the number of the submission event, if there is one.
    waiting: Vec<(Completion, Option<usize>)>,
}

impl State {
    /// Whether this request is the flush that fails.
    fn fails(&mut self, request: &Request) -> bool {
        if request.op() != Op::Flush {
            return false;
        }
        let left = self.until_failure;
        self.until_failure = left.and_then(|left| left.checked_sub(1));
        if left == Some(0) {
            self.has_failed = true;
            self.events.push(Event::Dropped);
        }
        left == Some(0)
    }

    fn carry_out(&mut self, request: &mut Request, range: &Range<u64>) -> Option<usize> {
        let mut at = range.start + request.offset_bytes();
        let change = match request.op() {
            Op::Read => {
                for memory in request.slices_mut() {
                    self.now.read(at, memory);
                    at += memory.len() as u64;
                }
                return None;
            }
            Op::Flush => Change::Flush(range.clone()),
            Op::Write => Change::Write {
                offset: at,
                bytes: request.slices().collect::<Vec<_>>().concat().into(),
                fua: request.fua(),
            },
            Op::WriteZeroes => Change::Write {
                offset: at,
                bytes: vec![0; request.len_bytes() as usize].into(),
                fua: false,
            },
            Op::Discard => Change::Discard {
                offset: at,
                bytes: vec![0; request.len_bytes() as usize].into(),
            },
        };
        if let Some((offset, bytes)) = change.content() {
            self.now.write(offset, bytes);
        }
        self.events.push(Event::Submitted(change));
        Some(self.events.len() - 1)
    }
}

impl PowerQueue {
    /// Waits a moment for another thread's flush to succeed after the one that has failed.
    fn await_another_flush(&self) {
        let mut moments = 0..MOMENT;
        while moments.next().is_some() && !self.state.lock().is_flushed_since {
            std::thread::yield_now();
        }
    }
}

impl Queue for PowerQueue {
    fn submit(&mut self, mut request: Request) {
        let len_bytes = self.range.end - self.range.start;
        let mut admitted = self.limits.admit_strictly(&request, len_bytes);
        let mut submitted = None;
        if admitted.is_ok() {
            let mut state = self.state.lock();
            if state.fails(&request) {
                admitted = Err(io::Error::other("the flush failed"));
                drop(state);
                self.await_another_flush();
            } else {
                submitted = state.carry_out(&mut request, &self.range);
            }
        }
        let completion = Completion {
            request,
            result: admitted,
        };
        self.waiting.push((completion, submitted));
    }

    fn kick(&mut self) {}

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let mut state = self.state.lock();
        let all = self.waiting.len();
        let mut n = wait_for.min(all);
        if n < all && state.random.bool() {
            n = state.random.usize(n..=all);
        }
        for _ in 0..n {
            let which = state.random.usize(..self.waiting.len());
            let (completion, submitted) = self.waiting.swap_remove(which);
            if let Some(number) = submitted {
                state.events.push(Event::Completed(number));
                let is_flush = completion.request.op() == Op::Flush;
                state.is_flushed_since |= is_flush && state.has_failed;
            }
            done.push(completion);
        }
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    fn depth(&self) -> usize {
        self.limits.queue_depth.max(1) as usize
    }
}
