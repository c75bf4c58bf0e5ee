//! Latency percentiles from counts per class: which share of the operations took longer than a given time.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::{Latencies, Line, Record};

/// Maximum number of steps of a curve. Longer ones are thinned, except in the tail.
const MAX_STEPS: usize = 400;

/// The percentiles that tables show, in percent.
pub(super) const PERCENTILES: &[f64] = &[50.0, 90.0, 99.0, 99.9, 99.99];

/// The latencies of one quantity, for several series.
#[derive(Debug, Serialize)]
pub(super) struct Plot {
    /// The operation, such as `write`.
    pub(super) quantity: String,
    pub(super) curves: Vec<Curve>,
}

/// The latencies of one series over all its rounds.
#[derive(Debug, Serialize)]
pub(super) struct Curve {
    /// Index of the entity in the page's list.
    pub(super) entity: usize,
    /// For each class: the share of the operations above the previous classes, and the maximum time (µs).
    pub(super) steps: Vec<(f32, f32)>,
    #[serde(skip)]
    pub(super) count: u64,
    /// The times (µs) at [`PERCENTILES`], then the maximum.
    #[serde(skip)]
    pub(super) at: Vec<f64>,
}

/// The curves of these records. `entity` returns the entity of a series of a record.
pub(super) fn plots(
    records: &[&Record],
    mut entity: impl FnMut(usize, &str) -> usize,
) -> Vec<Plot> {
    let mut plots: BTreeMap<&str, Vec<Curve>> = BTreeMap::new();
    for (run, record) in records.iter().enumerate() {
        let mut found: BTreeMap<(&str, &str), Vec<&Latencies>> = BTreeMap::new();
        for line in &record.lines {
            if let Line::Latencies(times) = line {
                found
                    .entry((&times.quantity, &times.series))
                    .or_default()
                    .push(times);
            }
        }
        for ((quantity, series), times) in found {
            let curve = curve(entity(run, series), &times);
            plots.entry(quantity).or_default().extend(curve);
        }
    }
    let plot = |(quantity, curves): (&str, Vec<Curve>)| Plot {
        quantity: quantity.to_owned(),
        curves,
    };
    plots.into_iter().map(plot).collect()
}

/// `None` if nothing was counted. Warm-up rounds are ignored if there are counted ones.
fn curve(entity: usize, times: &[&Latencies]) -> Option<Curve> {
    let warm_up_only = times.iter().all(|t| t.round == 0);
    let counted = times.iter().filter(|t| warm_up_only || t.round != 0);
    let mut classes: Vec<(f64, u64)> = counted
        .flat_map(|t| t.classes_us.iter().copied())
        .filter(|(limit, count)| !limit.is_nan() && *count > 0)
        .collect();
    classes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count: u64 = classes.iter().map(|c| c.1).fold(0, u64::saturating_add);
    let longest = classes.last()?.0;
    let mut steps = Vec::new();
    let mut before = 0u64;
    for (limit, of) in &classes {
        let share = 1.0 - before as f64 / count as f64;
        steps.push((share as f32, *limit as f32));
        before = before.saturating_add(*of);
    }
    let every = steps.len().div_ceil(MAX_STEPS);
    let last = steps.len() - 1;
    let mut numbered = 0..;
    steps.retain(|_| numbered.next().is_some_and(|i| i % every == 0 || i == last));
    let mut at: Vec<f64> = PERCENTILES
        .iter()
        .map(|p| percentile(&classes, count, *p))
        .collect();
    at.push(longest);
    Some(Curve {
        entity,
        steps,
        count,
        at,
    })
}

fn percentile(classes: &[(f64, u64)], count: u64, percent: f64) -> f64 {
    let wanted = (count as f64 * percent / 100.0).ceil();
    let mut seen = 0u64;
    let reached = classes.iter().find(|(_, of)| {
        seen = seen.saturating_add(*of);
        seen as f64 >= wanted
    });
    reached.or(classes.last()).map_or(0.0, |class| class.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(round: u32, classes_us: &[(f64, u64)]) -> Latencies {
        Latencies {
            series: "a".into(),
            quantity: "write".into(),
            round,
            classes_us: classes_us.to_vec(),
        }
    }

    #[test]
    fn rounds_are_added_and_the_warm_up_is_not() {
        let times = [
            times(0, &[(1e6, 100)]),
            times(1, &[(10.0, 50), (20.0, 40)]),
            times(2, &[(10.0, 40), (20.0, 60), (500.0, 10)]),
        ];
        let curve = curve(3, &times.iter().collect::<Vec<_>>()).expect("counted");
        assert_eq!(curve.count, 200);
        assert_eq!(curve.at, [20.0, 20.0, 500.0, 500.0, 500.0, 500.0]);
        assert_eq!(curve.steps.first(), Some(&(1.0, 10.0)));
        assert!((curve.steps.last().expect("a step").0 - 0.05).abs() < 1e-6);
    }

    #[test]
    fn nothing_counted_is_no_curve() {
        assert!(curve(0, &[&times(1, &[])]).is_none());
        assert!(curve(0, &[&times(1, &[(f64::NAN, 3), (4.0, 0)])]).is_none());
        let one = times(1, &[(f64::INFINITY, 1)]);
        assert_eq!(curve(0, &[&one]).expect("a curve").at[0], f64::INFINITY);
        let many = times(1, &(1..5000).map(|i| (f64::from(i), 1)).collect::<Vec<_>>());
        assert!(curve(0, &[&many]).expect("a curve").steps.len() <= MAX_STEPS + 1);
    }
}
