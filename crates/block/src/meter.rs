//! Measures the device's speed during ordinary I/O.
//!
//! Every [`SAMPLE_EVERY`]th call on a queue is timed; the others read no clock. A small read alone on its
//! queue gives the latency, a call of many bios the bandwidth. Both follow a better value at once and a worse
//! one slowly, because a call is mostly slowed down by other load. Each queue keeps its own figures, so that
//! nothing is shared per I/O. The disk's target changes only when a queue has derived the same new target
//! several times in a row.

use std::time::{Duration, Instant};

use throughline_device::{Limits, Op};

use crate::target::{Speed, Target, derive};

/// One call in this many is timed.
const SAMPLE_EVERY: u32 = 16;

/// A read up to this size, in bytes, measures the latency.
const SMALL_BYTES: u64 = 16 * 1024;

/// A call of at least this many bios keeps the device busy enough to measure its bandwidth.
const STREAM_BIOS: u64 = 16;

/// A new target is adopted once this many samples in a row agree on it.
const AGREEING: u32 = 8;

/// The weight of a worse sample.
const SLOWLY: f64 = 1.0 / 64.0;

/// One queue's figures.
#[derive(Debug)]
pub(crate) struct Meter {
    speed: Speed,
    until_next: u32,
    /// The target derived from the last samples, and how many in a row agree on it.
    wanted: (u32, u32),
}

/// One timed call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) begun: Option<Instant>,
    pub(crate) bios: u64,
    pub(crate) bytes: u64,
}

impl Sample {
    pub(crate) fn submit(&mut self, bytes: u64) {
        self.begun.get_or_insert_with(Instant::now);
        self.bios += 1;
        self.bytes += bytes;
    }
}

impl Meter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            speed: Speed::assumed(limits),
            until_next: SAMPLE_EVERY,
            wanted: (0, 0),
        }
    }

    /// A sample to fill, if this call is to be timed.
    pub(crate) fn next_call(&mut self) -> Option<Sample> {
        self.until_next -= 1;
        if self.until_next > 0 {
            return None;
        }
        self.until_next = SAMPLE_EVERY;
        Some(Sample::default())
    }

    /// What the device transfers in this time, in bytes.
    pub(crate) fn bytes_in(&self, time: Duration) -> u64 {
        (self.speed.bytes_per_ns * time.as_nanos() as f64) as u64
    }

    /// Updates the figures from a call that has just succeeded.
    pub(crate) fn learn(&mut self, op: Op, sample: &Sample, limits: &Limits, target: &Target) {
        let Some(begun) = sample.begun else { return };
        self.learn_from(op, sample.bios, sample.bytes, begun.elapsed());
        let wanted = derive(limits, self.speed);
        self.wanted = match self.wanted {
            (before, times) if before == wanted => (wanted, times.saturating_add(1)),
            _ => (wanted, 1),
        };
        if self.wanted.1 >= AGREEING {
            target.set_derived(wanted);
        }
    }

    fn learn_from(&mut self, op: Op, bios: u64, bytes: u64, took: Duration) {
        let took_ns = took.as_nanos().max(1) as f64;
        if bios >= STREAM_BIOS {
            let now = bytes as f64 / took_ns;
            let known = &mut self.speed.bytes_per_ns;
            *known = if now > *known {
                now
            } else {
                *known + (now - *known) * SLOWLY
            };
        } else if op == Op::Read && bios == 1 && bytes <= SMALL_BYTES {
            let known = &mut self.speed.latency_ns;
            *known = if took_ns < *known {
                took_ns
            } else {
                *known + (took_ns - *known) * SLOWLY
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_follows_what_many_samples_agree_on() {
        let limits = Limits {
            max_transfer_bytes: 4 << 20,
            ..Limits::default()
        };
        let target = Target::new(&limits);
        assert_eq!(target.bytes(), 256 << 10);
        let mut meter = Meter::new(&limits);
        // A network disk: 4 ms for a small read, 250 MB/s.
        for _ in 0..2000 {
            meter.learn_from(Op::Read, 1, 4096, Duration::from_millis(4));
            meter.learn_from(Op::Write, 64, 16 << 20, Duration::from_millis(64));
        }
        let sample = Sample {
            begun: Some(Instant::now()),
            ..Sample::default()
        };
        for asked in 1..=AGREEING {
            meter.learn(Op::Flush, &sample, &limits, &target);
            let expected = if asked < AGREEING { 256 << 10 } else { 1 << 20 };
            assert_eq!(target.bytes(), expected);
        }
        target.choose(Some(4096));
        assert_eq!(target.bytes(), 4096, "a chosen target takes precedence");
    }

    #[test]
    fn one_call_in_many_is_timed() {
        let mut meter = Meter::new(&Limits::default());
        let timed = (0..SAMPLE_EVERY * 10)
            .filter(|_| meter.next_call().is_some())
            .count();
        assert_eq!(timed, 10);
    }

    #[test]
    fn a_slow_moment_changes_little() {
        let mut meter = Meter::new(&Limits::default());
        let before = meter.speed;
        meter.learn_from(Op::Write, 64, 16 << 20, Duration::from_secs(5));
        meter.learn_from(Op::Read, 8, 4096, Duration::from_secs(5));
        assert!(meter.speed.bytes_per_ns > before.bytes_per_ns * 0.98);
        assert_eq!(meter.speed.latency_ns, before.latency_ns);
    }
}
