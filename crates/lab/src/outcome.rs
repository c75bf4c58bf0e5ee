//! The results of an experiment: samples, ratios, counts, limits and notes; turned into a [`Record`] at the
//! end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::Machine;
use crate::record::{Better, Head, Line, Record, Sample};
use crate::stats::Ratio;

/// Units in which less is better; in all others more is.
const LESS_IS_BETTER: &[&str] = &["us", "ms", "s", "s/GiB", "MiB", "KiB"];

/// A limit set by the project, and whether this run met it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bar {
    /// What is compared.
    pub name: String,
    /// What this run found.
    pub value: f64,
    /// The limit; `at_least` gives the direction.
    pub target: f64,
    /// True if `value` must be at least `target`, false if at most.
    pub at_least: bool,
    /// Whether the limit was met.
    pub met: bool,
}

/// A unit, such as `MB/s` (10⁶ bytes) or `us`, and one sample per round, in the order of the rounds.
type Series = (&'static str, Vec<f64>);

/// The whole result of one run of one experiment.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The experiment's name, such as `founding/1`.
    experiment: &'static str,
    /// The machine it ran on.
    pub(crate) machine: Machine,
    /// Variants by name; for each, its quantities by name.
    variants: BTreeMap<String, BTreeMap<&'static str, Series>>,
    ratios: BTreeMap<String, Ratio>,
    counts: BTreeMap<String, f64>,
    bars: Vec<Bar>,
    notes: Vec<String>,
    /// The user ended it: these are the samples up to then.
    pub(crate) interrupted: bool,
}

impl Outcome {
    /// An empty outcome of `experiment` on this machine.
    pub(crate) fn new(experiment: &'static str) -> Outcome {
        Outcome {
            experiment,
            machine: Machine::here(),
            variants: BTreeMap::new(),
            ratios: BTreeMap::new(),
            counts: BTreeMap::new(),
            bars: Vec::new(),
            notes: Vec::new(),
            interrupted: false,
        }
    }

    /// Whether nothing was measured yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.variants.is_empty()
    }

    /// Adds one sample.
    pub(crate) fn sample(
        &mut self,
        variant: &str,
        (quantity, unit, value): (&'static str, &'static str, f64),
    ) {
        let quantities = self.variants.entry(variant.into()).or_default();
        let series = quantities.entry(quantity).or_insert((unit, Vec::new()));
        series.1.push(value);
    }

    /// The samples of one quantity of one variant; empty if it did not run.
    pub(crate) fn samples(&self, variant: &str, quantity: &str) -> &[f64] {
        let of_variant = self.variants.get(variant);
        of_variant
            .and_then(|quantities| quantities.get(quantity))
            .map_or(&[], |series| &series.1)
    }

    /// The smallest and the largest of these samples; `None` if the variant did not run.
    pub(crate) fn range(&self, variant: &str, quantity: &str) -> Option<(f64, f64)> {
        let ends = self.samples(variant, quantity).iter().map(|s| (*s, *s));
        ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// The largest of these samples, none of which is below 0; 0 if the variant did not run.
    pub(crate) fn most(&self, variant: &str, quantity: &str) -> f64 {
        self.range(variant, quantity).map_or(0.0, |range| range.1)
    }

    /// Keeps a plain count.
    pub(crate) fn count(&mut self, name: impl Into<String>, value: f64) {
        self.counts.insert(name.into(), value);
    }

    /// Adds something the reader must know, such as what was left out and why.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Computes the ratio of `quantity` between two variants as `name`; `None` if one did not run.
    pub(crate) fn ratio(
        &mut self,
        name: &str,
        quantity: &str,
        over: &str,
        under: &str,
    ) -> Option<Ratio> {
        let ratio = Ratio::of(self.samples(over, quantity), self.samples(under, quantity))?;
        self.ratios.insert(name.into(), ratio);
        Some(ratio)
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
        self.bars.push(Bar {
            name: name.into(),
            value,
            target,
            at_least,
            met: if at_least {
                value >= target
            } else {
                value <= target
            },
        });
    }

    /// The record of a run that started at `started` (RFC 3339) with these settings.
    pub(crate) fn into_record(self, started: &str, settings: BTreeMap<String, Value>) -> Record {
        let mut lines = Vec::new();
        for (series, quantities) in self.variants {
            for (quantity, (unit, samples)) in quantities {
                let better = match LESS_IS_BETTER.contains(&unit) {
                    true => Better::Lower,
                    false => Better::Higher,
                };
                lines.extend(samples.into_iter().zip(1..).map(|(value, round)| {
                    Line::Sample(Sample {
                        series: series.clone(),
                        quantity: quantity.to_owned(),
                        unit: unit.to_owned(),
                        better,
                        round,
                        value,
                        at_s: None,
                    })
                }));
            }
        }
        let ratio = |(name, ratio)| Line::Ratio { name, ratio };
        lines.extend(self.ratios.into_iter().map(ratio));
        let count = |(name, value)| Line::Count { name, value };
        lines.extend(self.counts.into_iter().map(count));
        lines.extend(self.bars.into_iter().map(Line::Bar));
        lines.extend(self.notes.into_iter().map(|text| Line::Note { text }));
        let why = if self.interrupted {
            "interrupted"
        } else {
            "rounds"
        };
        lines.push(Line::End { why: why.into() });
        let mut head = Head::new(self.experiment, started, settings);
        head.machine = self.machine;
        Record { head, lines }
    }
}

/// Computes ratios of an [`Outcome`], one per line: `name => quantity, variant over, variant under;`,
/// followed by `, at_least LIMIT` or `, at_most LIMIT` if there is a limit. Variants that did not run have no
/// ratio and no limit.
macro_rules! ratios {
    ($outcome:expr; $($name:expr => $quantity:expr, $over:expr, $under:expr $(, $limit:ident $target:expr)?;)*) => {
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
