//! Snapshots of a throttle's state ([`ThrottleState`]), for `info` and the lab.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of classes of a [`Pauses::histogram`].
const CLASSES: usize = 24;

/// A snapshot of the dirty memory, limits, rates and pauses of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThrottleState {
    /// Dirty bytes of the device, including bytes under write-back.
    pub dirty_bytes: u64,
    /// Threshold in bytes from which the flusher writes in the background.
    pub background_bytes: u64,
    /// Threshold in bytes below which no writer pauses.
    pub freerun_bytes: u64,
    /// Where dirty memory is held, in bytes.
    pub setpoint_bytes: u64,
    /// Hard limit in bytes.
    pub limit_bytes: u64,
    /// Dirty bytes of all devices of the process.
    pub process_dirty_bytes: u64,
    /// The process's background threshold in bytes.
    pub process_background_bytes: u64,
    /// The process's hard limit in bytes.
    pub process_limit_bytes: u64,
    /// Writers that now wait for room of this device or of the process.
    pub waiting: usize,
    /// Measured bandwidth of the device in bytes per second; `None` until measured.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// What each writer may dirty at the setpoint, in bytes per second; `None` until the bandwidth was
    /// measured.
    pub ratelimit_bytes_per_s: Option<u64>,
    /// Bytes that the flusher writes of one file before it turns to the next.
    pub chunk_bytes: u64,
    /// Calls of [`Throttle::balance`](crate::throttle::Throttle::balance) so far.
    pub balance_calls: u64,
    /// Pauses of writers, each at most 200 ms.
    pub pauses: Pauses,
    /// Waits for room at the hard limit, each as long as the device needed.
    pub waits: Pauses,
}

/// Number and duration of pauses or waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pauses {
    /// The number.
    pub count: u64,
    /// The total duration.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
    /// The number in each class: entry `i` counts durations from 2^i µs to less than twice that. The first
    /// entry also counts shorter ones, the last also longer ones.
    pub histogram: Vec<u64>,
}

/// Concurrent counters for [`Pauses`]. Written once per pause, which costs less than the sleep.
#[derive(Default)]
pub(crate) struct Tally {
    count: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
    classes: [AtomicU64; CLASSES],
}

impl Tally {
    pub(crate) fn add(&self, pause: Duration) {
        let ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
        let class = ((ns / 1000).max(1).ilog2() as usize).min(CLASSES - 1);
        self.classes[class].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn read(&self) -> Pauses {
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Pauses {
            count: load(&self.count),
            total: Duration::from_nanos(load(&self.total_ns)),
            longest: Duration::from_nanos(load(&self.longest_ns)),
            histogram: self.classes.iter().map(load).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_counted_by_class() {
        let tally = Tally::default();
        for us in [0, 1, 2, 3, 1024, 2047, 200_000] {
            tally.add(Duration::from_micros(us));
        }
        tally.add(Duration::from_secs(1 << 30));
        let read = tally.read();
        assert_eq!(read.count, 8);
        assert_eq!(read.longest, Duration::from_secs(1 << 30));
        assert_eq!(read.histogram[0], 2);
        assert_eq!(read.histogram[1], 2);
        assert_eq!(read.histogram[10], 2);
        assert_eq!(read.histogram[17], 1);
        assert_eq!(read.histogram[CLASSES - 1], 1);
    }
}
