//! The control law, without clock, lock or sleep: how the amount of dirty memory relative to its thresholds
//! speeds writers up or slows them down.
//!
//! ```text
//!  pos_ratio 2 ┤ ╲
//!              │   ╲__
//!            1 ┤      ‾‾‾──┬──___
//!              │           │     ‾╲
//!            0 ┤           │        ╲
//!              └──┬────────┴────────┬── dirty bytes
//!              freerun   setpoint  limit
//! ```
//!
//! The cubic is flat at the setpoint, so that small deviations change little, and steep at both ends.

use std::time::Duration;

use crate::throttle::limits::Thresholds;

/// The longest pause of a writer.
pub(crate) const MAX_PAUSE: Duration = Duration::from_millis(200);

/// Shorter maximum pauses are not worth a sleep: writers then only wait at the limit.
const MIN_MAX_PAUSE: Duration = Duration::from_millis(1);

/// Granularity and minimum of the flusher's chunk.
const CHUNK_UNIT_BYTES: u64 = 4 << 20;

/// Dirty bytes and the thresholds that apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) dirty_bytes: u64,
    pub(crate) thresholds: Thresholds,
}

impl Position {
    /// Whether no writer pauses.
    pub(crate) fn is_free(self) -> bool {
        self.dirty_bytes <= self.thresholds.freerun_bytes()
    }

    /// Factor of the balanced rate: 1 at the setpoint, 0 at the limit, at most 2.
    pub(crate) fn pos_ratio(self) -> f64 {
        let setpoint = self.thresholds.setpoint_bytes() as f64;
        let span = (self.thresholds.limit_bytes as f64 - setpoint).max(1.0);
        let x = (setpoint - self.dirty_bytes as f64) / span;
        (1.0 + x * x * x).clamp(0.0, 2.0)
    }

    /// How many bytes a writer may dirty before it checks again, while no writer pauses: more if there is
    /// more room. The square root keeps many writers that check late from running far past free run.
    pub(crate) fn free_batch_bytes(self) -> u64 {
        let gap = self.thresholds.limit_bytes.saturating_sub(self.dirty_bytes);
        ((gap as f64 * 4096.0).sqrt() as u64).max(4096)
    }
}

/// The longest pause that leaves the device busy: a quarter of the time to drain all dirty memory, at most
/// [`MAX_PAUSE`]. Zero if that is too short for a sleep.
pub(crate) fn longest_pause(dirty_bytes: u64, bandwidth_bytes_per_s: f64) -> Duration {
    let drained_after = dirty_bytes as f64 / bandwidth_bytes_per_s.max(1.0);
    let longest = Duration::from_secs_f64((drained_after / 4.0).min(MAX_PAUSE.as_secs_f64()));
    if longest < MIN_MAX_PAUSE {
        Duration::ZERO
    } else {
        longest
    }
}

/// The number of bytes that the flusher writes of one file before it turns to the next: about half a second
/// of bandwidth, at most an eighth of the limit, in steps of 4 MiB; with a tiny limit half of the limit.
pub(crate) fn chunk_bytes(bandwidth_bytes_per_s: f64, limit_bytes: u64) -> u64 {
    let wanted = ((bandwidth_bytes_per_s / 2.0) as u64).min(limit_bytes / 8) + CHUNK_UNIT_BYTES;
    let whole = wanted / CHUNK_UNIT_BYTES * CHUNK_UNIT_BYTES;
    whole.min(limit_bytes / 2 / 4096 * 4096).max(4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::limits::DirtyLimits;

    fn at(dirty_bytes: u64) -> Position {
        // In MiB: background 400, freerun 600, setpoint 700, limit 800.
        Position {
            dirty_bytes: dirty_bytes << 20,
            thresholds: DirtyLimits::new(Some(800 << 20), Some(400 << 20)).resolve(0),
        }
    }

    #[test]
    fn the_ratio_is_the_reports_cubic() {
        assert_eq!(at(0).thresholds.freerun_bytes(), 600 << 20);
        assert_eq!(at(0).thresholds.setpoint_bytes(), 700 << 20);
        assert_eq!(at(700).pos_ratio(), 1.0);
        assert_eq!(at(800).pos_ratio(), 0.0);
        assert_eq!(at(900).pos_ratio(), 0.0);
        assert_eq!(at(600).pos_ratio(), 2.0);
        assert_eq!(at(0).pos_ratio(), 2.0);
        assert_eq!(at(750).pos_ratio(), 0.875);
        assert_eq!(at(650).pos_ratio(), 1.125);
        assert!(at(600).is_free() && !at(601).is_free());
    }

    #[test]
    fn chunks_follow_bandwidth_and_limit() {
        assert_eq!(chunk_bytes(0.0, 1 << 40), 4 << 20);
        assert_eq!(chunk_bytes(100e6, 1 << 40), 48 << 20);
        assert_eq!(chunk_bytes(1e12, 1 << 30), 132 << 20);
        assert_eq!(chunk_bytes(1e9, 1 << 20), 512 << 10, "a tiny limit");
        assert_eq!(chunk_bytes(1e9, 8192), 4096);
        assert_eq!(chunk_bytes(f64::INFINITY, 64 << 20), 12 << 20);
    }

    #[test]
    fn no_pause_leaves_the_device_without_work() {
        assert_eq!(longest_pause(1 << 40, 1e6), MAX_PAUSE);
        assert_eq!(longest_pause(100_000_000, 1e9), Duration::from_millis(25));
        assert_eq!(
            longest_pause(1 << 20, 2e9),
            Duration::ZERO,
            "too short for a sleep"
        );
        assert_eq!(longest_pause(1 << 20, 0.0), MAX_PAUSE);
    }

    #[test]
    fn thresholds_are_in_order_for_any_limits() {
        for limit in [0, 1, 1 << 20, u64::MAX] {
            for background in [None, Some(0), Some(1 << 19), Some(u64::MAX)] {
                let t = DirtyLimits::new(Some(limit), background).resolve(1 << 30);
                assert!(t.background_bytes <= t.freerun_bytes());
                assert!(t.freerun_bytes() < t.setpoint_bytes());
                assert!(t.setpoint_bytes() < t.limit_bytes);
                assert!(t.most_at_once() <= t.limit_bytes - t.background_bytes);
                assert!(t.most_at_once() >= 64 << 10, "the largest block of a file");
            }
        }
    }
}
