//! The result of an experiment: samples, ratios, counts, limits and notes. At the end it becomes a
//! [`Record`].

use std::collections::BTreeMap;

use serde_json::Value;

use crate::record::{Bar, Better, Head, Line, Ratio, Record, Sample};
use crate::stats::ratio;

/// Units of quantities of which less is better. Of all others, more is better.
const LESS_IS_BETTER: &[&str] = &["us", "ms", "s", "s/GiB", "MiB", "KiB"];

/// The complete result of a run of an experiment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// The results, in the order in which they were recorded.
    lines: Vec<Line>,
    /// Whether the user interrupted the run; the samples are those taken before.
    pub(crate) interrupted: bool,
}

impl Outcome {
    /// Whether nothing has been measured yet.
    pub(crate) fn is_empty(&self) -> bool {
        !self
            .lines
            .iter()
            .any(|line| matches!(line, Line::Sample(_)))
    }

    /// Adds one sample.
    pub(crate) fn sample(
        &mut self,
        variant: &str,
        (quantity, unit, value): (&'static str, &'static str, f64),
    ) {
        let better = match LESS_IS_BETTER.contains(&unit) {
            true => Better::Lower,
            false => Better::Higher,
        };
        let round = self.samples(variant, quantity).len() + 1;
        self.lines.push(Line::Sample(Sample {
            series: variant.to_owned(),
            quantity: quantity.to_owned(),
            unit: unit.to_owned(),
            better,
            round: u32::try_from(round).unwrap_or(u32::MAX),
            value,
            at_s: None,
        }));
    }

    /// The samples of one quantity of one variant; empty if it did not run.
    pub(crate) fn samples(&self, variant: &str, quantity: &str) -> Vec<f64> {
        let samples = self.lines.iter().filter_map(|line| match line {
            Line::Sample(s) if s.series == variant && s.quantity == quantity => Some(s.value),
            _ => None,
        });
        samples.collect()
    }

    /// The smallest and the largest of these samples; `None` if the variant did not run.
    pub(crate) fn range(&self, variant: &str, quantity: &str) -> Option<(f64, f64)> {
        let ends = self.samples(variant, quantity).into_iter().map(|s| (s, s));
        ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// The largest of these samples, which must not be negative; 0 if the variant did not run.
    pub(crate) fn most(&self, variant: &str, quantity: &str) -> f64 {
        self.range(variant, quantity).map_or(0.0, |range| range.1)
    }

    /// Records a count.
    pub(crate) fn count(&mut self, name: impl Into<String>, value: f64) {
        let name = name.into();
        self.lines.push(Line::Count { name, value });
    }

    /// Adds a note for the reader, such as what was left out and why.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.lines.push(Line::Note { text: text.into() });
    }

    /// Computes the ratio of `quantity` between two variants as `name`; `None` if one did not run.
    pub(crate) fn ratio(
        &mut self,
        name: &str,
        quantity: &str,
        over: &str,
        under: &str,
    ) -> Option<Ratio> {
        let (over, under) = (self.samples(over, quantity), self.samples(under, quantity));
        let ratio = ratio(&over, &under)?;
        let name = name.into();
        self.lines.push(Line::Ratio { name, ratio });
        Some(ratio)
    }

    /// Computes a ratio, and records its lower limit, if there is one.
    pub(crate) fn ratio_at_least(
        &mut self,
        name: &str,
        quantity: &str,
        (over, under): (&str, &str),
        limit: Option<f64>,
    ) {
        let ratio = self.ratio(name, quantity, over, under);
        if let (Some(ratio), Some(limit)) = (ratio, limit) {
            self.at_least(name, ratio.value, limit);
        }
    }

    /// Records a lower limit: `value` ≥ `target`.
    pub(crate) fn at_least(&mut self, name: &str, value: f64, target: f64) {
        self.bar(name, value, target, true);
    }

    /// Records an upper limit: `value` ≤ `target`.
    pub(crate) fn at_most(&mut self, name: &str, value: f64, target: f64) {
        self.bar(name, value, target, false);
    }

    fn bar(&mut self, name: &str, value: f64, target: f64, at_least: bool) {
        self.lines.push(Line::Bar(Bar {
            name: name.into(),
            value,
            target,
            at_least,
            met: if at_least {
                value >= target
            } else {
                value <= target
            },
        }));
    }

    /// The record of a run of this experiment, with these settings. `started`: RFC 3339.
    pub(crate) fn into_record(
        mut self,
        experiment: &str,
        started: &str,
        settings: BTreeMap<String, Value>,
    ) -> Record {
        self.lines.sort_by(|a, b| place(a).cmp(&place(b)));
        let why = match self.interrupted {
            true => "interrupted",
            false => "rounds",
        };
        self.lines.push(Line::End { why: why.into() });
        Record {
            head: Head::new(experiment, started, settings),
            lines: self.lines,
        }
    }
}

/// The order of lines in a record: by kind, and by name where the order of events is meaningless.
fn place(line: &Line) -> (u8, &str, &str) {
    match line {
        Line::Sample(sample) => (0, &sample.series, &sample.quantity),
        Line::Ratio { name, .. } => (1, name, ""),
        Line::Count { name, .. } => (2, name, ""),
        Line::Bar(_) => (3, "", ""),
        _ => (4, "", ""),
    }
}

/// Computes ratios of an [`Outcome`], one per line: `name => quantity, variant over, variant under;`,
/// followed by `, at_least LIMIT` or `, at_most LIMIT` if there is a limit. A line is skipped if one of its
/// variants did not run.
macro_rules! ratios {
    (
        $outcome:expr;
        $($name:expr => $quantity:expr, $over:expr, $under:expr $(, $limit:ident $target:expr)?;)*
    ) => {
        {$(
            let name = &$name;
            let name: &str = name.as_ref();
            let ratio = $outcome.ratio(name, $quantity, $over.as_ref(), $under.as_ref());
            $(if let Some(ratio) = ratio {
                $outcome.$limit(name, ratio.value, $target);
            })?
            let _ = ratio;
        )*}
    };
}
pub(crate) use ratios;
