//! A pipeline: bios are built, plugged and submitted while the caller still maps the next range.
//!
//! Invariants:
//! - A closed bio is submitted when the plug is flushed: when the plug is full or gets a large bio, at
//!   [`Pipeline::submit_open`], or at the end of the request.
//! - A caller that is about to block calls [`Pipeline::submit_open`] first, so that no bio is held back while
//!   the device is idle.
//! - After the first error nothing more is submitted, and the pipeline returns the error.

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

/// The parameters of a pipeline.
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

/// Submits reads or writes to the device. Created by [`crate::Disk::pipeline`].
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

    /// Adds memory for the device bytes from `offset` on: to the open bio if it is contiguous, else to a new
    /// one.
    ///
    /// Offset and length must be multiples of the logical block, the memory's address a multiple of the
    /// device's memory alignment ([`crate::Disk::limits`]).
    ///
    /// # Errors
    /// [`Error::Caller`] for a misaligned range or memory, or a range past the end of the device; the error
    /// of an earlier bio that failed.
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

    /// Closes the open bio. The next range starts a new one, which the plug may merge with it.
    pub(crate) fn close_open(&mut self) {
        self.builder.finish(&mut self.out);
    }

    /// Submits everything added so far, without waiting. Call it before anything that can block.
    pub fn submit_open(&mut self) {
        self.push_all();
        self.out.kick();
    }

    fn push_all(&mut self) {
        if !self.out.plug.is_empty() {
            self.builder.finish(&mut self.out);
            self.out.flush_plug();
        } else if let Some(bio) = self.builder.take_open() {
            // A small call has one bio and needs no plug.
            self.out.submit(bio);
        }
    }

    /// Submits everything added so far and waits until it is done.
    ///
    /// # Errors
    /// The error of the first bio that failed.
    pub fn wait(&mut self) -> Result<()> {
        self.push_all();
        self.out.drain();
        self.out.failed()
    }

    /// The sample, if this call is timed.
    pub(crate) fn sample(&self) -> Option<Sample> {
        self.out.sample
    }

    /// Discards the bios not submitted yet and waits for those in flight.
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

    /// Kicks the queue if anything was submitted since the last kick.
    fn kick(&mut self) {
        if std::mem::take(&mut self.unkicked) {
            self.scope.kick();
        }
    }

    /// Kicks the queue and reaps completions, which frees queue entries and reports errors to the caller
    /// early.
    fn go(&mut self) {
        self.kick();
        self.reap(0);
    }

    fn submit(&mut self, bio: Bio<'env>) {
        if self.scope.in_flight() >= self.scope.depth() {
            self.reap(self.reap_batch());
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

    /// The number of completions to wait for when the queue is full: a quarter of the depth. One wake per
    /// completion would cost a context switch or a system call each, and three quarters keep the device busy.
    /// With listeners it is one, because they get each completion when it arrives.
    fn reap_batch(&self) -> usize {
        match self.trace.is_on() {
            true => 1,
            false => (self.scope.depth() / 4).max(1),
        }
    }

    /// Waits for all bios in flight.
    fn drain(&mut self) {
        while self.scope.in_flight() > 0 {
            self.reap(self.reap_batch());
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
