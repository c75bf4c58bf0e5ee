//! A stream of asynchronous writes that own their memory, on a queue of its own.
//!
//! For write-back: the caller adds a range and looks for the next one while the device works; there is no end
//! of a call to wait for. The memory is shared ([`Arc`]) with concurrent readers and released when its bio
//! completes.
//!
//! ```text
//!  add ─► Builder ─► Plug ─► Lane ─► device
//!   └───► Pieces ◄─────────────┘ maps bytes to pieces; which are done
//! ```
//!
//! Invariants:
//! - A full bio is submitted at once if it is large, else with its plug. Open and plugged bios are submitted
//!   by [`Stream::submit_open`] and before every wait of [`Stream::reap`].
//! - Only these wait: [`Stream::add`] with the queue at depth, [`Stream::reap`] with `wait`, and dropping the
//!   stream.
//! - Each piece is returned once. A failed bio fails exactly the pieces that have bytes in it.

mod pieces;
mod window;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use foldhash::HashMap;
use throughline_device::{Done, Lane, Op, Pages, Segment};

use crate::bio::Bio;
use crate::builder::{Builder, Sink};
use crate::counters::QueueCounters;
use crate::disk::Disk;
use crate::error::{CallerFault, Error, Result};
use crate::limits::{BioLimits, SplitReason};
use crate::meter::{Meter, Sample};
use crate::plug::{self, Plug};
use crate::queues::Queues;
use crate::trace::Trace;
use pieces::Pieces;
use window::Window;

/// Bios in a sample that measures the device's bandwidth. The queue is never empty during a sample.
const SAMPLE_BIOS: u64 = 64;

/// The result of one piece of memory added to a [`Stream`].
#[derive(Debug)]
pub struct Written {
    /// The caller's number for the piece.
    pub cookie: u64,
    /// `Ok` if the piece is on the device. A piece split over several bios is returned once, with the first
    /// of their errors.
    pub result: Result<()>,
}

/// Asynchronous writes to one device. Used by one thread at a time.
///
/// Dropping it submits everything added and waits until that is done.
pub struct Stream {
    builder: Builder<'static>,
    out: Output,
}

/// Everything behind the builder.
struct Output {
    disk: Arc<Disk>,
    lane: Lane,
    plug: Plug<'static>,
    pieces: Pieces,
    /// For each bio in flight, by tag, the stream number of its first byte.
    on_device: HashMap<u64, u64>,
    bytes_on_device: u64,
    window: Window,
    counters: Arc<QueueCounters>,
    trace: Trace,
    meter: Meter,
    sample: Sample,
    next_tag: u64,
    unkicked: bool,
    /// Buffer for completions, kept so that a reap does not allocate.
    completions: Vec<Done>,
    /// Results not yet returned to the caller.
    done: Vec<Written>,
}

impl Stream {
    /// Opens a stream to `disk` with its own queue.
    ///
    /// # Errors
    /// If the device cannot open a queue.
    pub fn new(disk: Arc<Disk>) -> Result<Stream> {
        let (lane, counters) = disk.queues().open_lane()?;
        let target_bytes = u64::from(disk.bio_target_bytes());
        Ok(Stream {
            builder: Builder::new(Op::Write, *disk.bio_limits(), target_bytes),
            out: Output {
                lane,
                plug: Plug::default(),
                pieces: Pieces::default(),
                on_device: HashMap::default(),
                bytes_on_device: 0,
                window: Window::default(),
                counters,
                trace: Trace::new(disk.listeners().now()),
                meter: Meter::new(disk.limits()),
                sample: Sample::default(),
                next_tag: 0,
                unkicked: false,
                completions: Vec::new(),
                done: Vec::new(),
                disk,
            },
        })
    }

    /// Adds the bytes `range` of `pages`, to be written from device byte `offset` on: to the open bio if they
    /// continue it, else to a new one. Offset and length must be multiples of the logical block. Waits only
    /// if the queue is full. An invalid range or memory is reported through [`Stream::reap`], as any error.
    ///
    /// # Panics
    /// If `range` lies outside `pages`, which is a bug in the caller.
    pub fn add(&mut self, offset: u64, pages: &Arc<Pages>, range: Range<usize>, cookie: u64) {
        let memory = &pages[range.clone()];
        let len = memory.len();
        if let Some(result) = self.out.immediate_result(offset, memory) {
            return self.out.done.push(Written { cookie, result });
        }
        self.out.pieces.add(cookie, len as u64);
        self.out
            .trace
            .set_listeners(self.out.disk.listeners().now());
        self.builder
            .set_target_bytes(u64::from(self.out.disk.bio_target_bytes()));
        let segment = Segment::Shared {
            pages: Arc::clone(pages),
            from: range.start,
            len,
        };
        self.builder.add(offset, segment, &mut self.out);
    }

    /// Submits everything added so far, without waiting. Call it before anything that can block.
    pub fn submit_open(&mut self) {
        self.builder.finish(&mut self.out);
        self.out.flush_plug();
        self.out.kick();
    }

    /// Appends the pieces that are done to `done`. With `wait`, waits for at least one if any piece is in
    /// flight or open.
    pub fn reap(&mut self, wait: bool, done: &mut Vec<Written>) {
        if wait {
            self.submit_open();
        }
        self.out.reap(0);
        while wait && self.out.done.is_empty() && self.out.lane.in_flight() > 0 {
            self.out.reap(self.out.reap_batch());
        }
        done.append(&mut self.out.done);
    }

    /// Pieces added and not yet reaped.
    pub fn in_flight(&self) -> usize {
        self.out.pieces.waiting() + self.out.done.len()
    }

    /// Whether the queue holds as much as is useful, so that further writes would only wait in it.
    pub fn is_full(&self) -> bool {
        self.out.is_at_depth() || self.out.bytes_on_device >= self.out.window_bytes()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.submit_open();
        while self.out.lane.in_flight() > 0 {
            self.out.reap(self.out.lane.in_flight());
        }
    }
}

impl Output {
    /// The result of a piece that is not submitted because it is empty or invalid, or the device is cut off.
    fn immediate_result(&self, offset: u64, memory: &[u8]) -> Option<Result<()>> {
        let len = memory.len() as u64;
        if self.disk.is_cut() {
            return Some(Err(Queues::cut_off(Op::Write, offset, len)));
        }
        if let Err(error) = self.disk.check(Op::Write, offset, len) {
            return Some(Err(error));
        }
        let align = self.disk.bio_limits().memory_align_bytes;
        if len > 0 && !memory.as_ptr().addr().is_multiple_of(align) {
            let fault = CallerFault::MemoryMisaligned;
            return Some(Err(BioLimits::refuse(Op::Write, offset, len, fault)));
        }
        (len == 0).then_some(Ok(()))
    }

    fn flush_plug(&mut self) {
        let mut plug = std::mem::take(&mut self.plug);
        for bio in plug.drain() {
            self.submit(bio);
        }
        self.plug = plug;
    }

    fn is_at_depth(&self) -> bool {
        self.lane.in_flight() >= self.lane.depth()
    }

    fn window_bytes(&self) -> u64 {
        self.window.bytes(u64::from(self.disk.bio_target_bytes()))
    }

    /// Kicks the queue if anything was submitted since the last kick.
    fn kick(&mut self) {
        if std::mem::take(&mut self.unkicked) {
            self.lane.kick();
        }
    }

    fn submit(&mut self, bio: Bio<'static>) {
        if self.is_at_depth() {
            self.reap(self.reap_batch());
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        self.unkicked = true;
        self.counters.bio(bio.op, bio.len_bytes);
        self.trace.submit(tag, &bio);
        self.sample.begun.get_or_insert_with(Instant::now);
        self.on_device
            .insert(tag, self.pieces.submit(bio.len_bytes));
        self.bytes_on_device += bio.len_bytes;
        self.lane
            .submit(tag, bio.op, bio.offset_bytes, bio.segments, false);
    }

    /// The number of completions to wait for. With the queue full it is a quarter of the depth: one wake per
    /// completion would cost a context switch or a system call each, and three quarters keep the device busy.
    /// It is one otherwise, and with listeners, which get each completion when it arrives.
    fn reap_batch(&self) -> usize {
        match self.is_at_depth() && !self.trace.is_on() {
            true => (self.lane.depth() / 4).max(1),
            false => 1,
        }
    }

    fn reap(&mut self, wait_for: usize) {
        self.unkicked = false; // reaping kicks the queue
        let before_bytes = self.bytes_on_device;
        let mut completions = std::mem::take(&mut self.completions);
        self.lane.reap(wait_for, &mut completions);
        self.counters.done(completions.len());
        for one in completions.drain(..) {
            self.trace.complete(&one);
            self.bytes_on_device -= one.len_bytes;
            let first = self.on_device.remove(&one.tag);
            let first = first.expect("a lane completes only what was submitted to it");
            let (op, offset, len) = (one.op, one.offset_bytes, one.len_bytes);
            let failed = |source| Error::device(op, offset, len, source);
            let error = one.result.err().map(failed);
            self.pieces
                .complete(first, len, error.as_ref(), &mut self.done);
            self.sample.bios += 1;
            self.sample.bytes += len;
        }
        self.completions = completions;
        let target_bytes = u64::from(self.disk.bio_target_bytes());
        let most_bytes = self
            .meter
            .bytes_in(window::LONGEST)
            .min(self.lane.depth() as u64 * target_bytes);
        let after_bytes = self.bytes_on_device;
        self.window
            .reaped(before_bytes, after_bytes, target_bytes, most_bytes);
        self.learn();
    }

    /// Evaluates the sample when it is long enough, and discards it when the device is idle.
    fn learn(&mut self) {
        if self.lane.in_flight() == 0 {
            self.sample = Sample::default();
        } else if self.sample.bios >= SAMPLE_BIOS {
            let disk = &self.disk;
            self.meter
                .learn(Op::Write, &self.sample, disk.limits(), disk.target());
            self.sample = Sample {
                begun: Some(Instant::now()),
                ..Sample::default()
            };
        }
    }
}

impl Sink<'static> for Output {
    fn bio(&mut self, bio: Bio<'static>) {
        if self.plug.is_empty() && plug::is_large(&bio) {
            self.submit(bio);
            return self.kick();
        }
        let disk = Arc::clone(&self.disk);
        let target_bytes = u64::from(disk.bio_target_bytes());
        if self.plug.add(bio, disk.bio_limits(), target_bytes) {
            self.counters.merge();
            self.trace.merge(self.plug.last());
        }
        if self.plug.is_due() {
            self.flush_plug();
            self.kick();
        }
    }

    fn split(&mut self, offset_bytes: u64, reason: SplitReason) {
        self.counters.split(reason);
        self.trace.split(offset_bytes, reason);
    }

    fn now(&self) -> Option<Instant> {
        self.trace.now()
    }
}
