//! Latencies of single operations, kept exactly, in nanoseconds. So a percentile is a measured time, not the
//! bound of a histogram class. Verdicts are based on percentiles: with classes, two percentiles that differ
//! by less than a class would be either equal or a whole class apart.
//!
//! Invariant: the number of durations kept never exceeds the capacity. Of more operations, those kept are
//! a uniform random sample (J. Vitter, “Random Sampling with a Reservoir”, ACM Transactions on Mathematical
//! Software 11 (1985), algorithm R).

/// Maximum number of durations kept per round, for all workers together: 32 MiB.
pub(crate) const MOST: usize = 4 << 20;
/// Number of classes per factor of two, when times are counted for a curve: their bounds are 1.1 % apart.
const CLASSES: f64 = 64.0;

/// Durations of operations of one kind.
pub(crate) struct Durations {
    kept: Vec<u64>,
    /// Number of operations, including those that were not kept.
    count: u64,
    most: usize,
    random: fastrand::Rng,
}

impl Durations {
    /// No durations, with a capacity of `most`, or 1 if that is 0.
    pub(crate) fn new(most: usize) -> Durations {
        Durations {
            kept: Vec::new(),
            count: 0,
            most: most.max(1),
            random: fastrand::Rng::with_seed(1),
        }
    }

    pub(crate) fn note(&mut self, ns: u64) {
        self.count += 1;
        if self.kept.len() < self.most {
            self.kept.push(ns);
        } else if let Some(place) = self.kept.get_mut(self.random.u64(..self.count) as usize) {
            *place = ns;
        }
    }

    /// Moves all durations out of `other`.
    pub(crate) fn add(&mut self, other: &mut Durations) {
        self.count += other.count;
        let room = self.most.saturating_sub(self.kept.len());
        self.kept.extend(other.kept.drain(..).take(room));
        other.count = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The number of operations.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Must be called before the queries below.
    pub(crate) fn sort(&mut self) {
        self.kept.sort_unstable();
    }

    /// The percentile `share`, by nearest rank; 0 if there are no operations.
    pub(crate) fn at(&self, share: f64) -> u64 {
        let rank = (share * self.kept.len() as f64).ceil() as usize;
        let place = rank.clamp(1, self.kept.len().max(1)) - 1;
        self.kept.get(place).copied().unwrap_or(0)
    }

    /// For each class, ascending, its longest time in microseconds and the number of operations in it.
    pub(super) fn classes_us(&self) -> Vec<(f64, u64)> {
        let class = |ns: u64| (CLASSES * (ns.max(1) as f64).log2()) as u64;
        let kept = self.kept.len().max(1) as u64;
        let mut classes = Vec::new();
        let mut before = 0;
        let mut counted = 0;
        for of_class in self.kept.chunk_by(|a, b| class(*a) == class(*b)) {
            before += of_class.len() as u64;
            // If only a sample was kept, its counts are scaled up to all operations.
            let all = (u128::from(before) * u128::from(self.count) / u128::from(kept)) as u64;
            if let Some(longest) = of_class.last() {
                classes.push((*longest as f64 / 1e3, all - counted));
            }
            counted = all;
        }
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: impl IntoIterator<Item = u64>, most: usize) -> Durations {
        let mut durations = Durations::new(most);
        times.into_iter().for_each(|ns| durations.note(ns));
        durations.sort();
        durations
    }

    #[test]
    fn percentiles_are_times_that_were_measured() {
        // A histogram with two significant digits would merge all of these.
        let times = of((0..1000).map(|i| 100_000 + i), MOST);
        assert_eq!(
            [0.5, 0.99, 1.0].map(|share| times.at(share)),
            [100_499, 100_989, 100_999]
        );
        assert_eq!(of([7], MOST).at(0.5), 7);
        assert_eq!(of([], MOST).at(0.5), 0);
        let classes = times.classes_us();
        assert!(classes.iter().all(|(us, _)| (100.0..=100.999).contains(us)));
        assert_eq!(classes.last().map(|class| class.0), Some(100.999));
    }

    #[test]
    fn classes_count_every_operation_and_end_at_one() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut value = |_| {
            let bits = random.u32(1..40);
            random.u64(..1 << bits)
        };
        let values: Vec<u64> = (0..5000).map(&mut value).collect();
        let times = of(values.iter().copied(), MOST);
        let classes = times.classes_us();
        assert_eq!(classes.iter().map(|class| class.1).sum::<u64>(), 5000);
        assert!(classes.windows(2).all(|two| two[0].0 < two[1].0));
        let measured = |us: f64| values.contains(&((us * 1e3).round() as u64));
        assert!(classes.iter().all(|class| measured(class.0)));
    }

    #[test]
    fn more_than_it_holds_are_chosen_from_fairly_and_all_counted() {
        let times = of(0..100_000, 1000);
        assert_eq!((times.kept.len(), times.count()), (1000, 100_000));
        assert!(
            (45_000..55_000).contains(&times.at(0.5)),
            "{}",
            times.at(0.5)
        );
        assert_eq!(
            times.classes_us().iter().map(|class| class.1).sum::<u64>(),
            100_000
        );
        let mut all = Durations::new(10);
        let mut some = of(0..7, 10);
        all.add(&mut some);
        all.add(&mut of(0..7, 10));
        assert_eq!((all.kept.len(), all.count(), some.count()), (10, 14, 0));
    }
}
