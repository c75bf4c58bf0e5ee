//! Comparisons of runs that each have their own bias: how often equal code is called different, and whether a
//! loss is found.

use std::collections::BTreeMap;

use super::*;
use crate::record::{Line, throughput};
use crate::stats::normal;

/// Noise from a fixed seed.
struct Noise(fastrand::Rng);

impl Noise {
    /// A normally distributed factor with mean 1 and this deviation, in percent.
    fn percent(&mut self, deviation: f64) -> f64 {
        1.0 + deviation / 100.0 * normal(&mut self.0)
    }
}

/// A run that started in this second: 40 rounds with 1.2 % of noise. All samples are shifted by the run's own
/// bias, which has a spread of 2 %. If there are two series, each has its own bias.
fn run(noise: &mut Noise, second: usize, series: &[(&str, f64)]) -> Record {
    let mut lines = Vec::new();
    for (name, level) in series {
        let own = noise.percent(2.0);
        lines.extend((1..=40).map(|round| {
            let value = level * own * noise.percent(1.2);
            Line::Sample(throughput(name, round, value))
        }));
    }
    lines.push(Line::End {
        why: "rounds".into(),
    });
    Record {
        head: Head::new(
            "streams",
            format!("2026-01-02T03:04:{second:02}.000Z"),
            BTreeMap::new(),
        ),
        lines,
    }
}

/// The answer of a gate with a limit of 0 for this many runs per side; `new` is slower by `percent`. With
/// `turns`, the sides alternate; otherwise all runs of one side come first.
fn gated(noise: &mut Noise, runs: usize, percent: f64, turns: bool) -> Outcome {
    let mut of = |is_new: usize| -> Vec<Record> {
        let level = 100.0 * (1.0 - percent / 100.0 * is_new as f64);
        let second = |i| match turns {
            true => 2 * i + is_new,
            false => i + runs * is_new,
        };
        (0..runs)
            .map(|i| run(noise, second(i), &[("write", level)]))
            .collect()
    };
    let (base, new) = (of(0), of(1));
    let comparison = Comparison::of_runs(&named(&base), &named(&new), &Choice::default());
    answer(&comparison.expect("compared"))
}

fn named(records: &[Record]) -> Vec<Run<'_>> {
    records.iter().map(|record| ("run", record)).collect()
}

fn answer(comparison: &Comparison) -> Outcome {
    let limits = Limits {
        max_regression_percent: Some(0.0),
        ..Limits::default()
    };
    Gate::of(comparison, &limits).expect("gated").outcome
}

/// Samples of one run share the run's bias, so one run per side proves nothing, however many samples it has.
/// If the samples were judged as independent, more than half of these gates would raise a false alarm.
#[test]
fn one_run_a_side_is_no_evidence() {
    let mut noise = Noise(fastrand::Rng::with_seed(1));
    for percent in [0.0, 50.0] {
        for _ in 0..300 {
            assert_eq!(gated(&mut noise, 1, percent, true), Outcome::NotEnough);
        }
    }
}

#[test]
fn several_runs_in_turns_raise_no_alarm_and_find_a_loss() {
    if throughline_testkit::tier::is_too_long("trials of the statistics") {
        return;
    }
    const GATES: usize = 400;
    let mut noise = Noise(fastrand::Rng::with_seed(2));
    let mut count = |runs, percent, turns| {
        let of = |_: &usize| gated(&mut noise, runs, percent, turns) == Outcome::Regression;
        (0..GATES).filter(of).count()
    };
    let equal = [9, 12].map(|runs| count(runs, 0.0, true));
    let found = count(12, 5.0, true);
    println!("alarms in {GATES} equal gates: {equal:?}; a loss of 5 % found in {found}");
    assert!(
        equal.iter().all(|alarms| alarms * 100 <= GATES),
        "{equal:?}"
    );
    assert!(found * 100 >= GATES * 95, "{found}");
    assert_eq!(count(12, 5.0, false), 0, "two blocks are one pair");
}

#[test]
fn series_of_several_runs_are_compared_by_runs() {
    if throughline_testkit::tier::is_too_long("trials of the statistics") {
        return;
    }
    const GATES: usize = 300;
    let mut noise = Noise(fastrand::Rng::with_seed(3));
    let choice = Choice {
        base: Some("old".into()),
        new: Some("new".into()),
        ..Choice::default()
    };
    let mut count = |percent: f64| {
        let regressions = |_: &usize| {
            let series = [("old", 100.0), ("new", 100.0 - percent)];
            let runs: Vec<Record> = (0..10).map(|i| run(&mut noise, i, &series)).collect();
            let comparison = Comparison::within(&named(&runs), &choice).expect("compared");
            let judgement = &comparison.rows[0].judgement;
            assert_eq!((judgement.of, judgement.pairs), (Pairs::Runs, 10));
            answer(&comparison) == Outcome::Regression
        };
        (0..GATES).filter(regressions).count()
    };
    let (equal, found) = (count(0.0), count(8.0));
    println!("alarms in {GATES} equal gates: {equal}; a loss of 8 % found in {found}");
    assert!(equal * 100 <= GATES, "{equal}");
    assert!(found * 100 >= GATES * 95, "{found}");
}

#[test]
fn runs_of_a_side_must_have_something_in_common() {
    let mut noise = Noise(fastrand::Rng::with_seed(4));
    let a = run(&mut noise, 1, &[("a", 1.0)]);
    let b = run(&mut noise, 2, &[("b", 1.0)]);
    let compare = |base: &[Run<'_>], new: &[Run<'_>]| {
        Comparison::of_runs(base, new, &Choice::default())
            .expect_err("nothing")
            .to_string()
    };
    let output = compare(&[("x", &a), ("y", &b)], &[("z", &a)]);
    assert!(output.contains("in common"), "{output}");
    assert!(compare(&[], &[("z", &a)]).contains("one side has no run"));
    assert!(Comparison::within(&[], &Choice::default()).is_err());
}
