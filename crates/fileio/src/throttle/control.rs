//! The feedback loop of one device: measures the bandwidth window by window and adjusts the balanced rate.
//! Times are passed in, relative to an arbitrary start.

use std::time::Duration;

use crate::throttle::bandwidth::{Bandwidth, SAMPLE_EVERY};
use crate::throttle::law::{Position, longest_pause};
use crate::throttle::pacer::Pace;
use crate::throttle::ratelimit::{RateLimit, Window};

/// A longer window shows that no thread was active, not that the device is slow: waiting threads end windows.
const LONGEST_WINDOW: Duration = Duration::from_secs(1);

/// Dirty memory as one device sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Positions {
    pub(crate) device: Position,
    pub(crate) process: Position,
}

impl Positions {
    /// Whether no writer pauses.
    pub(crate) fn is_free(self) -> bool {
        self.device.is_free() && self.process.is_free()
    }

    /// The smaller of the two ratios.
    pub(crate) fn pos_ratio(self) -> f64 {
        self.device.pos_ratio().min(self.process.pos_ratio())
    }

    /// How much a thread may dirty before it checks again, while no writer pauses.
    pub(crate) fn free_batch_bytes(self) -> u64 {
        let device = self.device.free_batch_bytes();
        device.min(self.process.free_batch_bytes())
    }

    /// Whether the flusher writes in the background.
    pub(crate) fn over_background(self) -> bool {
        let over = |one: Position| one.dirty_bytes > one.thresholds.background_bytes;
        over(self.device) || over(self.process)
    }

    /// The pace of a writer at these positions, given the learned rates.
    pub(crate) fn pace(self, rates: Rates) -> Pace {
        Pace {
            bytes_per_s: rates.ratelimit_bytes_per_s * self.pos_ratio(),
            longest: longest_pause(self.device.dirty_bytes, rates.bandwidth_bytes_per_s),
        }
    }
}

/// The learned rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    /// Bandwidth of the device.
    pub(crate) bandwidth_bytes_per_s: f64,
    /// What each writer may dirty at the setpoint.
    pub(crate) ratelimit_bytes_per_s: f64,
}

/// Running totals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// All bytes that ever became clean.
    pub(crate) cleaned_bytes: u64,
    /// Number of pauses of writers.
    pub(crate) pauses: u64,
}

/// See the module documentation.
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
    /// Ends the window if it is long enough. Returns the rates; `None` if no window ended or no rate is known
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
        // If writers ran free for part of the window, they dirtied more than the rate. The window then still
        // shows that the rate is too low, but not that it is too high.
        let held_back = !from.is_free && !to.is_free;
        let partly = to.totals.pauses > from.totals.pauses && pos_ratio > 1.0;
        if !watched || !(held_back || partly) {
            return;
        }
        // Dirtied bytes are now clean or still dirty. Discarded bytes count as neither.
        let dirtied = (to.dirty_bytes + cleaned).saturating_sub(from.dirty_bytes);
        ratelimit.learn(Window {
            pos_ratio,
            bandwidth_bytes_per_s: bandwidth,
            dirtied_bytes_per_s: dirtied as f64 / elapsed.as_secs_f64(),
        });
    }
}
