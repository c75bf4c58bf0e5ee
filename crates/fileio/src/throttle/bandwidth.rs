//! The device's write-back bandwidth, measured from bytes cleaned in windows of [`SAMPLE_EVERY`].

use std::time::Duration;

/// Minimum length of a window: it ends with the first event after this time.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_millis(200);

/// Time constant of the smoothing. Until this much time was measured, the plain average is used.
const SMOOTHED_OVER: Duration = Duration::from_secs(3);

/// Lower bound for a stalled device; avoids division by zero.
const MIN_BYTES_PER_S: f64 = 64.0 * 1024.0;

/// See the module documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bandwidth {
    bytes_per_s: f64,
    watched: Duration,
}

impl Bandwidth {
    /// Bytes per second; `None` before the first window has ended.
    pub(crate) fn bytes_per_s(&self) -> Option<f64> {
        (self.watched > Duration::ZERO).then_some(self.bytes_per_s.max(MIN_BYTES_PER_S))
    }

    /// Adds a window of `elapsed` in which `bytes` became clean. If the device was not busy all the time,
    /// this is only a lower bound for its bandwidth.
    pub(crate) fn sample(&mut self, bytes: u64, elapsed: Duration, busy: bool) {
        let seconds = elapsed.as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let seen = bytes as f64 / seconds;
        if !busy && seen <= self.bytes_per_s {
            return;
        }
        self.watched = self.watched.saturating_add(elapsed).min(SMOOTHED_OVER);
        let share = (seconds / self.watched.as_secs_f64()).min(1.0);
        self.bytes_per_s += (seen - self.bytes_per_s) * share;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn windows(of: &mut Bandwidth, count: usize, mib: u64, busy: bool) -> f64 {
        for _ in 0..count {
            of.sample(mib * MIB, SAMPLE_EVERY, busy);
        }
        of.bytes_per_s().unwrap_or(0.0) / MIB as f64
    }

    #[test]
    fn the_first_window_is_believed_and_later_ones_are_smoothed() {
        let mut bandwidth = Bandwidth::default();
        assert_eq!(bandwidth.bytes_per_s(), None);
        assert_eq!(windows(&mut bandwidth, 1, 100, true).round(), 500.0);
        windows(&mut bandwidth, 14, 100, true);
        // One outlier among fifteen windows weighs a fifteenth.
        assert_eq!(windows(&mut bandwidth, 1, 0, true).round(), 467.0);
        let stepped = windows(&mut bandwidth, 15, 20, true);
        assert!(
            (100.0..250.0).contains(&stepped),
            "{stepped} after one constant"
        );
        let steady = windows(&mut bandwidth, 75, 20, true);
        assert!((99.0..105.0).contains(&steady), "{steady}");
    }

    #[test]
    fn an_idle_device_is_not_a_slow_one() {
        let mut bandwidth = Bandwidth::default();
        windows(&mut bandwidth, 15, 100, true);
        assert_eq!(windows(&mut bandwidth, 100, 1, false).round(), 500.0);
        assert!(windows(&mut bandwidth, 15, 200, false) > 500.0);
    }

    #[test]
    fn a_stalled_device_has_some_bandwidth() {
        let mut bandwidth = Bandwidth::default();
        windows(&mut bandwidth, 500, 0, true);
        assert_eq!(bandwidth.bytes_per_s(), Some(MIN_BYTES_PER_S));
        bandwidth.sample(5, Duration::ZERO, true);
        assert_eq!(bandwidth.bytes_per_s(), Some(MIN_BYTES_PER_S));
    }
}
