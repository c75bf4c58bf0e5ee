//! One device's side of the feedback loop: window by window it measures the bandwidth and moves the balanced rate. Times
//! are explicit, counted from any moment.

use std::time::Duration;

use crate::throttle::bandwidth::{Bandwidth, SAMPLE_EVERY};
use crate::throttle::law::{Position, longest_pause};
use crate::throttle::pacer::Pace;
use crate::throttle::ratelimit::{RateLimit, Window};

/// A longer window shows nobody at work, not a slow device: whoever waits for the device ends windows.
const LONGEST_WINDOW: Duration = Duration::from_secs(1);

/// Dirty memory as it counts for one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Positions {
    pub(crate) device: Position,
    pub(crate) process: Position,
}

impl Positions {
    /// Nobody pauses here.
    pub(crate) fn is_free(self) -> bool {
        self.device.is_free() && self.process.is_free()
    }

    /// The stricter one's.
    pub(crate) fn pos_ratio(self) -> f64 {
        self.device.pos_ratio().min(self.process.pos_ratio())
    }

    /// How much may be dirtied before looking again, where nobody pauses.
    pub(crate) fn free_batch_bytes(self) -> u64 {
        let device = self.device.free_batch_bytes();
        device.min(self.process.free_batch_bytes())
    }

    /// Whether the flusher writes without being asked.
    pub(crate) fn over_background(self) -> bool {
        let over = |one: Position| one.dirty_bytes > one.thresholds.background_bytes;
        over(self.device) || over(self.process)
    }

    /// What a writer is held to here, when the balanced rate and the bandwidth are known.
    pub(crate) fn pace(self, rates: Rates) -> Pace {
        Pace {
            bytes_per_s: rates.ratelimit_bytes_per_s * self.pos_ratio(),
            longest: longest_pause(self.device.dirty_bytes, rates.bandwidth_bytes_per_s),
        }
    }
}

/// What was learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    /// What the device takes.
    pub(crate) bandwidth_bytes_per_s: f64,
    /// What each writer may dirty at the setpoint.
    pub(crate) ratelimit_bytes_per_s: f64,
}

/// What has been counted so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// All that ever became clean.
    pub(crate) cleaned_bytes: u64,
    /// Pauses that writers made.
    pub(crate) pauses: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Control {
    window: Option<Begun>,
    bandwidth: Bandwidth,
    ratelimit: Option<RateLimit>,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    at: Duration,
    dirty_bytes: u64,
    totals: Totals,
    over_background: bool,
    is_free: bool,
}

impl Control {
    /// Ends a window if it has lasted long enough. What is known since; `None` where no window ended, or nothing is known
    /// yet.
    pub(crate) fn sample(
        &mut self,
        now: Duration,
        positions: Positions,
        totals: Totals,
    ) -> Option<Rates> {
        let ended = match self.window {
            Some(window) if now.saturating_sub(window.at) < SAMPLE_EVERY => return None,
            ended => ended,
        };
        let next = Begun {
            at: now,
            dirty_bytes: positions.device.dirty_bytes,
            totals,
            over_background: positions.over_background(),
            is_free: positions.is_free(),
        };
        self.window = Some(next);
        self.learn(ended?, next, positions.pos_ratio());
        Some(Rates {
            bandwidth_bytes_per_s: self.bandwidth.bytes_per_s()?,
            ratelimit_bytes_per_s: self.ratelimit?.bytes_per_s(),
        })
    }

    fn learn(&mut self, from: Begun, to: Begun, pos_ratio: f64) {
        let elapsed = to.at.saturating_sub(from.at);
        let watched = elapsed <= LONGEST_WINDOW;
        let cleaned = to
            .totals
            .cleaned_bytes
            .saturating_sub(from.totals.cleaned_bytes);
        let busy = watched && from.over_background && to.over_background;
        self.bandwidth.sample(cleaned, elapsed, busy);
        let Some(bandwidth) = self.bandwidth.bytes_per_s() else {
            return;
        };
        let ratelimit = self.ratelimit.get_or_insert(RateLimit::new(bandwidth));
        // Where writers ran free for a part of it, they dirtied more than they were held to: too low a rate shows all the
        // same, too high a one does not.
        let held_back = !from.is_free && !to.is_free;
        let partly = to.totals.pauses > from.totals.pauses && pos_ratio > 1.0;
        if !watched || !(held_back || partly) {
            return;
        }
        // What was dirtied became clean, or is dirty still; what was thrown away counts for neither.
        let dirtied = (to.dirty_bytes + cleaned).saturating_sub(from.dirty_bytes);
        ratelimit.learn(Window {
            pos_ratio,
            bandwidth_bytes_per_s: bandwidth,
            dirtied_bytes_per_s: dirtied as f64 / elapsed.as_secs_f64(),
        });
    }
}
