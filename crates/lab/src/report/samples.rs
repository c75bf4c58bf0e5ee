//! The samples of the files by quantity, for tables and plots.
//!
//! Invariants: tables include every finite sample of a round, and plots show all of them up to
//! [`MAX_POINTS`]. For longer series, a plot over time shows the minimum and maximum of each stretch, and a
//! distribution is binned from all samples. Non-finite samples are excluded everywhere, and counted.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::{Better, Line, Record, Sample};
use crate::stats::{Summary, outliers, quantile, sorted, warm_up};

/// Maximum number of points of a series in a plot.
const MAX_POINTS: usize = 1200;
/// Number of samples at the start that are checked for warm-up.
const WARMING_LOOK: usize = 4000;
/// Number of bins for the distribution of a longer series.
const BINS: usize = 60;

/// One quantity of all series of all files.
#[derive(Debug, Serialize)]
pub(super) struct Quantity {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) better: Better,
    /// Whether x is seconds since the start of the run instead of the round.
    pub(super) by_time: bool,
    pub(super) rows: Vec<Row>,
}

/// One series of one file.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Index of its entity in the page's list.
    pub(super) entity: usize,
    /// x and value of the rounds' samples.
    pub(super) points: Vec<(f32, f32)>,
    /// Indices in `points`.
    pub(super) outliers: Vec<usize>,
    /// x and value of the warm-up's samples.
    pub(super) warm_up: Vec<(f32, f32)>,
    /// The number of samples at the start that look like warm-up; they are still counted.
    pub(super) warming: usize,
    /// First quartile, median, third quartile.
    pub(super) quartiles: [f32; 3],
    /// If there are more samples than points: the lower end, the upper end, and the number of samples in each
    /// of the equal bins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bins: Option<(f32, f32, Vec<u32>)>,
    #[serde(skip)]
    pub(super) summary: Summary,
    #[serde(skip)]
    pub(super) outliers_in_all: usize,
    /// Non-finite samples of rounds.
    #[serde(skip)]
    pub(super) no_numbers: usize,
}

/// All quantities of these records, the most important first. `entity` returns the entity of a series of a
/// record.
pub(super) fn quantities(
    records: &[&Record],
    mut entity: impl FnMut(usize, &str) -> usize,
) -> Vec<Quantity> {
    type Series<'r> = BTreeMap<(usize, &'r str), Vec<&'r Sample>>;
    let mut found: BTreeMap<(&str, &str), Series<'_>> = BTreeMap::new();
    for (run, record) in records.iter().enumerate() {
        for line in &record.lines {
            if let Line::Sample(sample) = line {
                let of_quantity = found.entry((&sample.quantity, &sample.unit)).or_default();
                let of_series = of_quantity.entry((run, &sample.series)).or_default();
                of_series.push(sample);
            }
        }
    }
    let mut quantities = Vec::new();
    for ((name, unit), mut series) in found {
        // A series with only warm-up samples has no figures.
        series.retain(|_, samples| samples.iter().any(|s| s.round > 0));
        let Some(first) = series.values().flatten().next() else {
            continue;
        };
        let better = first.better;
        let timed = |s: &&Sample| s.at_s.is_some_and(f64::is_finite);
        let by_time = series.values().flatten().all(timed);
        let rows = series.into_iter().map(|((run, series), mut samples)| {
            samples.sort_by_key(|s| s.round);
            row(entity(run, series), &samples, by_time)
        });
        quantities.push(Quantity {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better,
            by_time,
            rows: rows.collect(),
        });
    }
    quantities.sort_by_key(|quantity| rank(&quantity.name));
    quantities
}

/// The main result comes before its costs.
fn rank(name: &str) -> usize {
    const FIRST: &[&str] = &["throughput", "rate", "time", "write", "read"];
    FIRST
        .iter()
        .position(|first| *first == name)
        .unwrap_or(FIRST.len())
}

/// The figures and points of one series: by time if all samples of the quantity record it, otherwise by
/// round.
fn row(entity: usize, samples: &[&Sample], by_time: bool) -> Row {
    let is_number = |s: &&&Sample| s.value.is_finite();
    let (warm_up_samples, counted): (Vec<&Sample>, Vec<&Sample>) =
        samples.iter().partition(|s| s.round == 0);
    let x = |s: &Sample, otherwise: f64| s.at_s.filter(|_| by_time).unwrap_or(otherwise);
    // Without times, the last warm-up sample is at 0, earlier ones at -1, -2 and so on.
    let warm_up_samples: Vec<_> = warm_up_samples.iter().filter(is_number).collect();
    let first = 1.0 - warm_up_samples.len() as f64;
    let warm_ups = warm_up_samples.iter().enumerate();
    let warm_ups = warm_ups.map(|(i, s)| (x(s, first + i as f64) as f32, s.value as f32));
    let numbers: Vec<_> = counted.iter().filter(is_number).collect();
    let values: Vec<f64> = numbers.iter().map(|s| s.value).collect();
    let sorted = sorted(&values);
    let mut row = Row {
        entity,
        points: Vec::new(),
        outliers: Vec::new(),
        warm_up: warm_ups.take(MAX_POINTS).collect(),
        quartiles: [0.25, 0.5, 0.75].map(|share| quantile(&sorted, share) as f32),
        warming: warm_up(&values[..values.len().min(WARMING_LOOK)]),
        bins: None,
        summary: Summary::of(&values),
        outliers_in_all: 0,
        no_numbers: counted.len() - values.len(),
    };
    let points = numbers.iter().map(|s| (x(s, f64::from(s.round)), s.value));
    row.place(points.collect());
    row
}

impl Row {
    fn place(&mut self, mut points: Vec<(f64, f64)>) {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let values: Vec<f64> = points.iter().map(|point| point.1).collect();
        let mut outside = vec![false; points.len()];
        for outlier in outliers(&values) {
            outside[outlier.index] = true;
            self.outliers_in_all += 1;
        }
        if points.len() > MAX_POINTS {
            self.bins = Some(bins(&values, &outside));
        }
        for index in thin(&values) {
            if outside[index] {
                self.outliers.push(self.points.len());
            }
            let (x, value) = points[index];
            self.points.push((x as f32, value as f32));
        }
    }
}

/// Bins the samples without the outliers, which are drawn individually.
fn bins(values: &[f64], outside: &[bool]) -> (f32, f32, Vec<u32>) {
    let within = || {
        values
            .iter()
            .zip(outside)
            .filter(|(_, outside)| !**outside)
            .map(|(v, _)| *v)
    };
    let from = within().fold(f64::INFINITY, f64::min);
    let to = within().fold(f64::NEG_INFINITY, f64::max);
    let mut counts = vec![0; BINS];
    for value in within() {
        let share = if to > from {
            (value - from) / (to - from)
        } else {
            0.0
        };
        counts[((share * BINS as f64) as usize).min(BINS - 1)] += 1;
    }
    (from as f32, to as f32, counts)
}

/// Indices of the minimum and maximum of each stretch, ascending.
fn thin(values: &[f64]) -> Vec<usize> {
    let stretch = match values.len() <= MAX_POINTS {
        true => 1,
        false => values.len().div_ceil(MAX_POINTS / 2),
    };
    let mut kept = Vec::new();
    for begin in (0..values.len()).step_by(stretch) {
        let stretch = begin..(begin + stretch).min(values.len());
        let by_value = |a: &usize, b: &usize| values[*a].total_cmp(&values[*b]);
        kept.extend(stretch.clone().min_by(by_value));
        kept.extend(stretch.max_by(by_value));
    }
    kept.sort_unstable();
    kept.dedup();
    kept
}

#[cfg(test)]
mod tests {
    use super::super::testing::{record, sample};
    use super::*;

    fn numbered(_: usize, series: &str) -> usize {
        series.len()
    }

    #[test]
    fn a_series_is_placed_by_round_or_by_time() {
        let mut lines = vec![sample("a", 0, 50.0), sample("a", 0, 60.0)];
        lines.extend(
            [10.0, 11.0, 12.0, 11.0, 99.0, 10.0, 11.0, 12.0]
                .iter()
                .zip(1..)
                .map(|(v, r)| sample("a", r, *v)),
        );
        let mut by_round = record(lines);
        let quantities = quantities(&[&by_round], numbered);
        let row = &quantities[0].rows[0];
        assert_eq!(row.warm_up, [(-1.0, 50.0), (0.0, 60.0)]);
        assert_eq!(row.points[4], (5.0, 99.0));
        assert_eq!(
            (row.outliers.as_slice(), row.outliers_in_all),
            (&[4][..], 1)
        );
        assert_eq!(row.quartiles, [10.75, 11.0, 12.0]);
        for (line, at) in by_round.lines.iter_mut().zip(1..) {
            if let Line::Sample(sample) = line {
                sample.at_s = Some(f64::from(at) * 0.5);
            }
        }
        let quantities = super::quantities(&[&by_round], numbered);
        assert!(quantities[0].by_time);
        assert_eq!(quantities[0].rows[0].points[0], (1.5, 10.0));
    }

    #[test]
    fn values_that_are_not_finite_are_skipped_and_counted() {
        let lines = vec![
            sample("a", 1, f64::NAN),
            sample("a", 2, f64::INFINITY),
            sample("a", 3, 4.0),
        ];
        let quantities = quantities(&[&record(lines)], numbered);
        let row = &quantities[0].rows[0];
        assert_eq!(
            (row.no_numbers, row.summary.count, row.points.len()),
            (2, 1, 1)
        );
        let none = super::quantities(&[&record(vec![sample("a", 1, f64::NAN)])], numbered);
        assert_eq!(none[0].rows[0].summary.count, 0);
    }

    #[test]
    fn many_samples_are_thinned_and_keep_their_extremes() {
        let value = |round: u32| {
            if round == 7_777 {
                1e6
            } else {
                f64::from(round % 13)
            }
        };
        let lines = (1..20_000)
            .map(|round| sample("a", round, value(round)))
            .collect();
        let quantities = quantities(&[&record(lines)], numbered);
        let row = &quantities[0].rows[0];
        assert!(row.points.len() <= MAX_POINTS);
        assert_eq!(row.summary.count, 19_999);
        assert!(row.points.contains(&(7_777.0, 1e6)));
        let (from, to, counts) = row.bins.as_ref().expect("counted");
        assert_eq!(
            (*from, *to, counts.iter().sum::<u32>()),
            (0.0, 12.0, 19_998)
        );
    }
}
