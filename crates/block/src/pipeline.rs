//! A pipeline: bios are built, plugged and given to the device while their maker still looks for the next range.
//!
//! Invariants:
//! - What is closed goes to the device at the next flush of the plug, and the first full bio flushes it; nothing waits
//!   for the end of the caller's request.
//! - Whoever is about to block calls [`Pipeline::submit_open`] first, so that the device never waits for a bio that
//!   waits for the device.
//! - After the first error nothing more is submitted, and the pipeline cannot end well.

use std::time::Instant;

use throughline_device::{Done, Op, Scope, Segment};

use crate::bio::Bio;
use crate::builder::{Builder, Sink};
use crate::counters::QueueCounters;
use crate::error::{CallerFault, Error, Result};
use crate::limits::{BioLimits, SplitReason};
use crate::meter::Sample;
use crate::plug::{self, Plug};
use crate::trace::Trace;

/// What a pipeline works with, besides the device.
pub(crate) struct Setup<'p> {
    pub(crate) op: Op,
    pub(crate) fua: bool,
    pub(crate) limits: BioLimits,
    pub(crate) target_bytes: u64,
    pub(crate) end_of_device: u64,
    pub(crate) counters: &'p QueueCounters,
    pub(crate) done: &'p mut Vec<Done>,
    pub(crate) trace: Trace,
    pub(crate) sample: Option<Sample>,
}

/// Reads or writes on their way to the device; made by [`crate::Disk::pipeline`].
pub struct Pipeline<'p, 'queue, 'env> {
    builder: Builder<'env>,
    op: Op,
    end_of_device: u64,
    out: Output<'p, 'queue, 'env>,
}

/// Everything behind the builder.
struct Output<'p, 'queue, 'env> {
    scope: &'p mut Scope<'queue, 'env>,
    plug: Plug<'env>,
    fua: bool,
    limits: BioLimits,
    target_bytes: u64,
    counters: &'p QueueCounters,
    done: &'p mut Vec<Done>,
    trace: Trace,
    sample: Option<Sample>,
    next_tag: u64,
    unkicked: bool,
    error: Option<Error>,
}

impl<'p, 'queue, 'env> Pipeline<'p, 'queue, 'env> {
    pub(crate) fn new(scope: &'p mut Scope<'queue, 'env>, setup: Setup<'p>) -> Self {
        Self {
            builder: Builder::new(setup.op, setup.limits, setup.target_bytes),
            op: setup.op,
            end_of_device: setup.end_of_device,
            out: Output {
                scope,
                plug: Plug::default(),
                fua: setup.fua,
                limits: setup.limits,
                target_bytes: setup.target_bytes,
                counters: setup.counters,
                done: setup.done,
                trace: setup.trace,
                sample: setup.sample,
                next_tag: 0,
                unkicked: false,
                error: None,
            },
        }
    }

    /// Adds memory for the device bytes from `offset` on: to the open bio where it continues it, else to a new one.
    ///
    /// Offset and length are in whole logical blocks, the memory at a multiple of the device's memory alignment
    /// ([`crate::Disk::limits`]).
    ///
    /// # Errors
    /// A range or memory that is not so, or past the end of the device; a bio before it that failed.
    pub fn add(&mut self, offset: u64, segment: Segment<'env>) -> Result<()> {
        let len = segment.len() as u64;
        let limits = &self.out.limits;
        limits.check_range(self.op, offset, len, self.end_of_device)?;
        if !segment.addr().is_multiple_of(limits.memory_align_bytes) {
            return Err(BioLimits::refuse(
                self.op,
                offset,
                len,
                CallerFault::MemoryMisaligned,
            ));
        }
        self.builder.add(offset, segment, &mut self.out);
        self.out.failed()
    }

    /// Ends the open bio, so that what follows is a bio of its own until a plug merges them.
    pub(crate) fn close_open(&mut self) {
        self.builder.finish(&mut self.out);
    }

    /// Gives everything to the device, without waiting. To be called before anything that can block.
    pub fn submit_open(&mut self) {
        self.push_all();
        self.out.kick();
    }

    fn push_all(&mut self) {
        if !self.out.plug.is_empty() {
            self.builder.finish(&mut self.out);
            self.out.flush_plug();
        } else if let Some(bio) = self.builder.take_open() {
            // A call of one bio, as small ones are, needs no plug.
            self.out.submit(bio);
        }
    }

    /// Gives everything to the device and waits until all of it is done.
    ///
    /// # Errors
    /// The first bio that failed.
    pub fn wait(&mut self) -> Result<()> {
        self.push_all();
        self.out.drain();
        self.out.failed()
    }

    /// What was timed, if this call is a sample.
    pub(crate) fn sample(&self) -> Option<Sample> {
        self.out.sample
    }

    /// Forgets what is not on the device yet and waits for what is.
    pub(crate) fn cancel(mut self) {
        self.out.drain();
    }
}

impl<'env> Output<'_, '_, 'env> {
    fn failed(&self) -> Result<()> {
        self.error.clone().map_or(Ok(()), Err)
    }

    fn flush_plug(&mut self) {
        let mut plug = std::mem::take(&mut self.plug);
        for bio in plug.drain() {
            self.submit(bio);
        }
        self.plug = plug;
    }

    /// Tells the device of what was submitted since it was told last.
    fn kick(&mut self) {
        if std::mem::take(&mut self.unkicked) {
            self.scope.kick();
        }
    }

    /// Has the device begin, and takes what it has done: that need not fill the queue, and an error should stop the
    /// bios' maker early.
    fn go(&mut self) {
        self.kick();
        self.reap(0);
    }

    fn submit(&mut self, bio: Bio<'env>) {
        if self.scope.in_flight() >= self.scope.depth() {
            self.reap(self.worth_waking_for());
        }
        if self.error.is_some() {
            return;
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        self.unkicked = true;
        self.counters.bio(bio.op, bio.len_bytes);
        if self.fua {
            self.counters.fua();
        }
        self.trace.submit(tag, &bio);
        if let Some(sample) = &mut self.sample {
            sample.submit(bio.len_bytes);
        }
        self.scope
            .submit(tag, bio.op, bio.offset_bytes, bio.segments, self.fua);
    }

    /// How many completions to wait for when the queue is full. To wake for each costs a switch of threads, or a
    /// system call, for each; a quarter leaves the device enough to do meanwhile. A listener is told of each when it
    /// comes.
    fn worth_waking_for(&self) -> usize {
        match self.trace.is_on() {
            true => 1,
            false => (self.scope.depth() / 4).max(1),
        }
    }

    /// Waits for all that is in flight.
    fn drain(&mut self) {
        while self.scope.in_flight() > 0 {
            self.reap(self.worth_waking_for());
        }
    }

    fn reap(&mut self, wait_for: usize) {
        self.scope.reap(wait_for, self.done);
        self.counters.done(self.done.len());
        for done in self.done.drain(..) {
            self.trace.complete(&done);
            if let Err(source) = done.result {
                let error = Error::device(done.op, done.offset_bytes, done.len_bytes, source);
                self.error.get_or_insert(error);
            }
        }
    }
}

impl<'env> Sink<'env> for Output<'_, '_, 'env> {
    fn bio(&mut self, bio: Bio<'env>) {
        if self.plug.is_empty() && plug::is_large(&bio) {
            self.submit(bio);
            return self.go();
        }
        if self.plug.add(bio, &self.limits, self.target_bytes) {
            self.counters.merge();
            self.trace.merge(self.plug.last());
        }
        if self.plug.is_due() {
            self.flush_plug();
            self.go();
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
