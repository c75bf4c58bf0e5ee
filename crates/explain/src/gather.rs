//! Running totals while a command runs: sizes, times, and the queue depth, each in bounded memory.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::account::{Depth, Sizes, Times};

/// Maximum number of distinct sizes counted exactly. Further sizes are rounded up to a power of two.
const MAX_SIZES: usize = 1024;

/// A histogram of sizes.
#[derive(Debug, Default)]
pub(super) struct SizeCounts(BTreeMap<u64, u64>);

impl SizeCounts {
    pub(super) fn add(&mut self, bytes: u64) {
        let bytes = match self.0.len() < MAX_SIZES || self.0.contains_key(&bytes) {
            true => bytes,
            false => bytes.checked_next_power_of_two().unwrap_or(u64::MAX),
        };
        *self.0.entry(bytes).or_default() += 1;
    }

    pub(super) fn sizes(&self) -> Sizes {
        self.0.iter().map(|(size, count)| (*size, *count)).collect()
    }
}

/// A histogram of times, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct TimeCounts {
    /// Created with the first time.
    histogram: Option<Histogram<u64>>,
    total_ns: u128,
}

impl TimeCounts {
    pub(super) fn add(&mut self, ns: u64) {
        self.total_ns += u128::from(ns);
        if self.histogram.is_none() {
            // Three significant digits are a valid precision, so this is always `Some`.
            self.histogram = Histogram::new(3).ok();
        }
        if let Some(histogram) = &mut self.histogram {
            // It resizes itself, so no value is out of range.
            let _ = histogram.record(ns);
        }
    }

    pub(super) fn times(&self) -> Times {
        let Some(histogram) = &self.histogram else {
            return Times::default();
        };
        let at = |quantile| us(histogram.value_at_quantile(quantile));
        Times {
            count: histogram.len(),
            total_us: self.total_ns as f64 / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            max_us: us(histogram.max()),
        }
    }

    /// Pairs of a class's upper bound in microseconds and the count of times in it. A class spans a quarter
    /// of an octave.
    pub(super) fn classes_us(&self) -> Vec<(f64, u64)> {
        let Some(histogram) = &self.histogram else {
            return Vec::new();
        };
        let classes = histogram.iter_log(1, 2f64.powf(0.25));
        let classes = classes.map(|one| {
            (
                us(one.value_iterated_to()),
                one.count_since_last_iteration(),
            )
        });
        classes.filter(|class| class.1 > 0).collect()
    }
}

pub(super) fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The number of I/Os in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    now: u64,
    most: u64,
    /// The sums below cover the time up to this point.
    at_ns: u64,
    busy_ns: u64,
    /// Sum of I/Os in flight times nanoseconds.
    area: u128,
}

impl InFlight {
    /// One more I/O is in flight from `at_ns`, counted from the start of the command. Times may be slightly
    /// out of order.
    pub(super) fn more(&mut self, at_ns: u64) {
        self.pass(at_ns);
        self.now += 1;
        self.most = self.most.max(self.now);
    }

    /// One I/O fewer is in flight from `at_ns`.
    pub(super) fn less(&mut self, at_ns: u64) {
        self.pass(at_ns);
        self.now = self.now.saturating_sub(1);
    }

    fn pass(&mut self, to_ns: u64) {
        let spent_ns = to_ns.saturating_sub(self.at_ns);
        if self.now > 0 {
            self.busy_ns += spent_ns;
        }
        self.area += u128::from(spent_ns) * u128::from(self.now);
        self.at_ns += spent_ns;
    }

    /// The result, up to `end_ns`.
    pub(super) fn depth(&mut self, end_ns: u64) -> Depth {
        self.pass(end_ns);
        Depth {
            most: self.most,
            mean_busy: self.area as f64 / self.busy_ns.max(1) as f64,
            busy: self.busy_ns as f64 / self.at_ns.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact_and_bounded() {
        let mut sizes = SizeCounts::default();
        for size in 0..10_000u64 {
            sizes.add(size * 512);
        }
        sizes.add(512);
        let sizes = sizes.sizes();
        assert!(sizes.len() < MAX_SIZES + 65);
        assert_eq!(sizes[1], (512, 2));
        assert_eq!(sizes.iter().map(|size| size.1).sum::<u64>(), 10_001);
    }

    #[test]
    fn times_have_percentiles() {
        let mut times = TimeCounts::default();
        assert_eq!(times.times(), Times::default());
        (1..=100).for_each(|us| times.add(us * 1000));
        let t = times.times();
        assert_eq!((t.count, t.total_us), (100, 5050.0));
        assert!((t.p50_us - 50.0).abs() < 0.1, "{t:?}");
        assert!((t.p99_us - 99.0).abs() < 0.1, "{t:?}");
        let classes = times.classes_us();
        assert_eq!(classes.iter().map(|class| class.1).sum::<u64>(), 100);
        assert!(classes.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn depth_is_a_mean_over_time() {
        let mut depth = InFlight::default();
        depth.more(0);
        depth.more(10_000);
        depth.less(20_000);
        depth.less(20_000);
        let seen = depth.depth(40_000);
        assert_eq!((seen.most, seen.busy, seen.mean_busy), (2, 0.5, 1.5));
        depth.more(3_600_000_000_000);
        depth.less(7_200_000_000_000);
        let seen = depth.depth(7_200_000_000_000);
        assert!((seen.busy - 0.5).abs() < 1e-6);
        // An event that arrives late, for example from another processor, is accepted.
        depth.more(5);
        assert_eq!(depth.depth(0).most, 2);
    }
}
