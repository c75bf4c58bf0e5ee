//! One writer's account: bytes dirtied since the last settlement, and its time. Times are passed in.
//!
//! Invariants:
//! - A pause never exceeds the longest allowed pause.
//! - A writer pays for each dirtied byte once: by pauses, or by time spent elsewhere (think time).
//! - Unused time is credited for at most one longest pause: a writer that was idle for long gets no free
//!   burst.

use std::time::Duration;

use crate::throttle::law::MAX_PAUSE;

/// Target length of a pause: long enough to be worth a sleep, too short to be noticed.
const AIM: Duration = Duration::from_millis(10);

/// Maximum credit for unused time.
const MAX_CREDIT: Duration = MAX_PAUSE;

/// Upper bound for a debt, to prevent overflow.
const MAX_PERIOD: Duration = Duration::from_secs(10);

/// A writer settles at the latest after this many bytes.
const MAX_BATCH_BYTES: u64 = 8 << 20;

/// The pace of a writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Bytes per second that this writer may dirty.
    pub(crate) bytes_per_s: f64,
    /// The longest allowed pause.
    pub(crate) longest: Duration,
}

/// See the module documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    dirtied_bytes: u64,
    /// The account is settled once this many bytes were dirtied.
    batch_bytes: u64,
    /// The time up to which dirtied bytes are paid for; `None`: earlier time does not count. May lie in the
    /// future, for a debt too small for a sleep.
    paid_until: Option<Duration>,
}

impl Pacer {
    /// Adds dirtied bytes. Returns whether a settlement is due.
    pub(crate) fn charge(&mut self, bytes: u64) -> bool {
        self.dirtied_bytes = self.dirtied_bytes.saturating_add(bytes);
        self.dirtied_bytes >= self.batch_bytes
    }

    /// Cancels the debt while no writer pauses. The next check is due after `batch_bytes`.
    pub(crate) fn forgive(&mut self, batch_bytes: u64) {
        self.dirtied_bytes = 0;
        self.batch_bytes = batch_bytes;
        self.paid_until = None;
    }

    /// Bytes dirtied since the last settlement.
    pub(crate) fn dirtied_bytes(&self) -> u64 {
        self.dirtied_bytes
    }

    /// Settles the account. Returns the pause to make now, zero if it is not worth a sleep.
    pub(crate) fn adjust(&mut self, now: Duration, pace: Pace) -> Duration {
        let due = self.due_at(self.dirtied_bytes, now, pace);
        let pause = worthwhile(due.saturating_sub(now), pace);
        // Debt that the pause does not cover is carried over, up to one longest pause.
        self.paid_until = Some(due.min(now + pause + pace.longest));
        self.dirtied_bytes = 0;
        let aimed = pace.bytes_per_s * AIM.min(pace.longest).as_secs_f64();
        self.batch_bytes = (aimed as u64).clamp(4096, MAX_BATCH_BYTES);
        pause
    }

    /// The time at which `bytes` are paid for at this pace.
    fn due_at(&self, bytes: u64, now: Duration, pace: Pace) -> Duration {
        let oldest = now.saturating_sub(MAX_CREDIT);
        let from = self.paid_until.map_or(now, |paid| paid.max(oldest));
        let period = bytes as f64 / pace.bytes_per_s.max(1.0);
        from + Duration::from_secs_f64(period.min(MAX_PERIOD.as_secs_f64()))
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
