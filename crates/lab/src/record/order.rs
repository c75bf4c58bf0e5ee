//! Effects of a target's position in the round on the samples of a [`Record`].

use std::collections::BTreeMap;

use super::{Line, Record};
use crate::stats::{self, Rounds};

/// When a value was taken, the number of its target, and the value.
type Timed = (f64, usize, f64);

/// One sentence for each quantity on which the position in the round certainly has an effect; none if the
/// samples do not record their time.
pub(crate) fn effects_of_order(record: &Record) -> Vec<String> {
    let mut series: BTreeMap<&str, usize> = BTreeMap::new();
    let mut timed: BTreeMap<&str, BTreeMap<u32, Vec<Timed>>> = BTreeMap::new();
    for line in &record.lines {
        let Line::Sample(sample) = line else { continue };
        let (Some(at_s), 1..) = (sample.at_s, sample.round) else {
            continue;
        };
        let next = series.len();
        let target = *series.entry(&sample.series).or_insert(next);
        let rounds = timed.entry(&sample.quantity).or_default();
        let round = rounds.entry(sample.round).or_default();
        round.push((at_s, target, sample.value));
    }
    let in_order = |mut round: Vec<Timed>| {
        round.sort_by(|a, b| a.0.total_cmp(&b.0));
        let measured = round.into_iter().map(|(_, target, value)| (target, value));
        measured.collect()
    };
    let of_quantity = |(quantity, rounds): (_, BTreeMap<u32, _>)| {
        let rounds: Rounds = rounds.into_values().map(in_order).collect();
        (quantity, rounds)
    };
    stats::effects_of_order(&timed.into_iter().map(of_quantity).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{Head, Sample, throughput};
    use super::*;

    /// Two series in random order. The first one in each round is slower by `percent`. The lines are
    /// unordered.
    fn run(percent: f64, timed: bool) -> Record {
        let mut random = fastrand::Rng::with_seed(4);
        let mut lines = Vec::new();
        for round in 0..=40 {
            let mut order = ["old", "new"];
            random.shuffle(&mut order);
            for (place, series) in order.into_iter().enumerate() {
                let slow = if place == 0 {
                    1.0 - percent / 100.0
                } else {
                    1.0
                };
                lines.push(Line::Sample(Sample {
                    at_s: timed.then(|| f64::from(round) * 2.0 + place as f64),
                    ..throughput(series, round, slow * (99.0 + 2.0 * random.f64()))
                }));
            }
        }
        random.shuffle(&mut lines);
        Record {
            head: Head::new("a test", "2026-01-02T03:04:05.000Z", BTreeMap::new()),
            lines,
        }
    }

    #[test]
    fn an_effect_of_order_is_reported_only_if_there_is_one() {
        let effects = effects_of_order(&run(5.0, true));
        let [effects] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert!(
            effects.contains("throughput of the first in a round differs by -5."),
            "{effects}"
        );
        assert!(effects_of_order(&run(0.0, true)).is_empty());
        assert!(effects_of_order(&run(5.0, false)).is_empty());
    }
}
