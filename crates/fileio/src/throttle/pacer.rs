//! One writer's account: what it dirtied since it was last settled, and when that was. Times are explicit.
//!
//! Invariants:
//! - A pause is never longer than the longest that was allowed.
//! - What a writer dirties is paid for once: by pauses, or by the time that it spent otherwise (think time).
//! - Time unused is credit for one longest pause at most: who was away for long does not come back with a burst for free.

use std::time::Duration;

use crate::throttle::law::MAX_PAUSE;

/// The pause that is aimed at: long enough to be worth a sleep, short enough not to be noticed.
const AIM: Duration = Duration::from_millis(10);

/// Credit for time unused, at most.
const MOST_CREDIT: Duration = MAX_PAUSE;

/// No debt is counted as longer, so that no arithmetic overflows.
const MOST_PERIOD: Duration = Duration::from_secs(10);

/// A writer looks again at the latest after so many bytes.
const MOST_BATCH_BYTES: u64 = 8 << 20;

/// A writer that can be held to a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// What this writer may dirty a second.
    pub(crate) bytes_per_s: f64,
    /// The longest pause.
    pub(crate) longest: Duration,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    dirtied_bytes: u64,
    /// Below this nothing is settled.
    batch_bytes: u64,
    /// Up to when what was dirtied is paid for; `None`: the time before counts for nothing. May lie ahead: a debt too small
    /// for a sleep.
    paid_until: Option<Duration>,
}

impl Pacer {
    /// Adds to what it dirtied. Whether it is time to settle.
    pub(crate) fn charge(&mut self, bytes: u64) -> bool {
        self.dirtied_bytes = self.dirtied_bytes.saturating_add(bytes);
        self.dirtied_bytes >= self.batch_bytes
    }

    /// Whether `bytes` more would make it settle.
    pub(crate) fn is_due(&self, bytes: u64) -> bool {
        self.dirtied_bytes.saturating_add(bytes) >= self.batch_bytes
    }

    /// Where nobody pauses: nothing is owed, look again after `batch_bytes`.
    pub(crate) fn forgive(&mut self, batch_bytes: u64) {
        self.dirtied_bytes = 0;
        self.batch_bytes = batch_bytes;
        self.paid_until = None;
    }

    /// What it dirtied.
    pub(crate) fn dirtied_bytes(&self) -> u64 {
        self.dirtied_bytes
    }

    /// How long it would have to pause, if it dirtied `bytes` more; zero where that is not worth a sleep.
    pub(crate) fn owed(&self, bytes: u64, now: Duration, pace: Pace) -> Duration {
        let due = self.due_at(self.dirtied_bytes.saturating_add(bytes), now, pace);
        worthwhile(due.saturating_sub(now), pace)
    }

    /// Settles the account: the pause to make now, zero where it is not worth a sleep.
    pub(crate) fn settle(&mut self, now: Duration, pace: Pace) -> Duration {
        let due = self.due_at(self.dirtied_bytes, now, pace);
        let pause = worthwhile(due.saturating_sub(now), pace);
        // What a pause leaves of the debt is carried on, up to one longest pause.
        self.paid_until = Some(due.min(now + pause + pace.longest));
        self.dirtied_bytes = 0;
        let aimed = pace.bytes_per_s * AIM.min(pace.longest).as_secs_f64();
        self.batch_bytes = (aimed as u64).clamp(4096, MOST_BATCH_BYTES);
        pause
    }

    /// When `bytes` are paid for, at this pace.
    fn due_at(&self, bytes: u64, now: Duration, pace: Pace) -> Duration {
        let oldest = now.saturating_sub(MOST_CREDIT);
        let from = self.paid_until.map_or(now, |paid| paid.max(oldest));
        let period = bytes as f64 / pace.bytes_per_s.max(1.0);
        from + Duration::from_secs_f64(period.min(MOST_PERIOD.as_secs_f64()))
    }
}

fn worthwhile(pause: Duration, pace: Pace) -> Duration {
    let least = AIM.min(pace.longest) / 2;
    if pause < least {
        Duration::ZERO
    } else {
        pause.min(pace.longest)
    }
}
