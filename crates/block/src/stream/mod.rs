//! A stream of writes that own their memory: given to the device and left to it, on a queue of the stream's own.
//!
//! For write-back: whoever adds goes on to find what comes next while the device works, with no end of a call to wait
//! for. The memory is shared ([`Arc`]) with whoever reads it meanwhile, and let go when its bio is done.
//!
//! ```text
//!  add ─► Builder ─► Plug ─► Lane ─► device
//!   └───► Pieces ◄─────────────┘ which bytes are whose, and done
//! ```
//!
//! Invariants:
//! - A full bio goes to the device at once, or by the plugful where it is small; what is open or plugged goes at
//!   [`Stream::submit_open`] and before every wait of [`Stream::reap`].
//! - Nothing waits but [`Stream::add`] with the queue at depth, [`Stream::reap`] that is told to, and dropping it.
//! - Each piece comes back once. A failed bio fails the pieces that have bytes in it and no others.

mod pieces;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

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

/// So many bios of the target's size on the device are as many as are of use: it is never idle, and what comes next may
/// still grow or be overwritten where it is.
const USEFUL_BIOS: u64 = 32;

/// Bios of a sample that shows the device's bandwidth. While it is taken the queue is never empty.
const SAMPLE_BIOS: u64 = 64;

/// What became of one piece of memory that was added to a [`Stream`].
#[derive(Debug)]
pub struct Written {
    /// The adder's own number for it.
    pub cookie: u64,
    /// On the device, or why not. A piece that went out as several bios comes back once, with the first error of them.
    pub result: Result<()>,
}

/// Writes on their way to one device. One thread uses it at a time.
///
/// Dropping it gives the device what was added and waits until that is done.
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
    /// Of each bio on the device, by its tag, the number of its first byte in the stream.
    on_device: HashMap<u64, u64>,
    bytes_on_device: u64,
    counters: Arc<QueueCounters>,
    trace: Trace,
    meter: Meter,
    sample: Sample,
    next_tag: u64,
    unkicked: bool,
    /// Memory for completions, kept so that a reap allocates none.
    completions: Vec<Done>,
    /// What is done and was not asked for.
    done: Vec<Written>,
}

impl Stream {
    /// A stream to `disk`, with a queue of its own.
    ///
    /// # Errors
    /// When the device gives no queue.
    pub fn new(disk: Arc<Disk>) -> Result<Stream> {
        let (lane, counters) = disk.queues().open_lane()?;
        let target_bytes = u64::from(disk.bio_target_bytes());
        Ok(Stream {
            builder: Builder::new(Op::Write, *disk.bio_limits(), target_bytes),
            out: Output {
                lane,
                plug: Plug::default(),
                pieces: Pieces::default(),
                on_device: HashMap::new(),
                bytes_on_device: 0,
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

    /// Adds the bytes `range` of `pages`, not none, for the device bytes from `offset` on: to the open bio where they continue it,
    /// else to a new one. Offset and length are in whole logical blocks. Goes on at once unless the queue is full. A
    /// range that the device refuses comes back as an error like any other.
    ///
    /// # Panics
    /// If `range` is not one of `pages`: our own bug.
    pub fn add(&mut self, offset: u64, pages: &Arc<Pages>, range: Range<usize>, cookie: u64) {
        let memory = &pages[range.clone()];
        let len = memory.len();
        if let Some(result) = self.out.answer_at_once(offset, memory) {
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

    /// Gives everything to the device, without waiting. To be called before anything that can block.
    pub fn submit_open(&mut self) {
        self.builder.finish(&mut self.out);
        self.out.flush_plug();
        self.out.kick();
    }

    /// Appends what is done to `done`; with `wait`, and something in flight or open, at least one piece.
    pub fn reap(&mut self, wait: bool, done: &mut Vec<Written>) {
        if wait {
            self.submit_open();
        }
        self.out.reap(0);
        while wait && self.out.done.is_empty() && self.out.lane.in_flight() > 0 {
            self.out.reap(self.out.worth_waking_for());
        }
        done.append(&mut self.out.done);
    }

    /// Pieces added and not yet reaped.
    pub fn in_flight(&self) -> usize {
        self.out.pieces.waiting() + self.out.done.len()
    }

    /// Whether the device's queue is as full as is of use: what is added now waits in line.
    pub fn is_full(&self) -> bool {
        let useful = USEFUL_BIOS * u64::from(self.out.disk.bio_target_bytes());
        self.out.is_at_depth() || self.out.bytes_on_device >= useful
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
    /// What becomes of a piece that never gets to the device: nothing, or what no device could do.
    fn answer_at_once(&self, offset: u64, memory: &[u8]) -> Option<Result<()>> {
        let len = memory.len() as u64;
        if self.disk.is_cut() {
            return Some(Err(Queues::cut_off(Op::Write, offset, len)));
        }
        if let Err(error) = self.disk.check_write(offset, len) {
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

    /// Tells the device of what was submitted since it was told last.
    fn kick(&mut self) {
        if std::mem::take(&mut self.unkicked) {
            self.lane.kick();
        }
    }

    fn submit(&mut self, bio: Bio<'static>) {
        if self.is_at_depth() {
            self.reap(self.worth_waking_for());
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

    /// How many completions to wait for. With the queue full a quarter: to wake for each costs a switch of threads, or a
    /// system call, for each, and the device has enough to do meanwhile. Else, or when a listener is to be told when
    /// each comes, one.
    fn worth_waking_for(&self) -> usize {
        match self.is_at_depth() && !self.trace.is_on() {
            true => (self.lane.depth() / 4).max(1),
            false => 1,
        }
    }

    fn reap(&mut self, wait_for: usize) {
        self.unkicked = false; // to reap is to kick
        let mut completions = std::mem::take(&mut self.completions);
        self.lane.reap(wait_for, &mut completions);
        self.counters.done(completions.len());
        for one in completions.drain(..) {
            self.trace.complete(&one);
            self.bytes_on_device -= one.len_bytes;
            let first = self.on_device.remove(&one.tag);
            let first = first.expect("a lane gives back what it was given");
            let (op, offset, len) = (one.op, one.offset_bytes, one.len_bytes);
            let failed = |source| Error::device(op, offset, len, source);
            let error = one.result.err().map(failed);
            self.pieces
                .complete(first, len, error.as_ref(), &mut self.done);
            self.sample.bios += 1;
            self.sample.bytes += len;
        }
        self.completions = completions;
        self.learn();
    }

    /// Ends the sample when it is long enough, and forgets it when the device has nothing to do.
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
