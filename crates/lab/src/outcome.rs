//! What an experiment found: samples, ratios, counters and bars, as JSON for scripts and as a table for people.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::stats::{Ratio, Summary};

/// One measured quantity of one variant.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The unit, such as `MB/s` (10⁶ bytes) or `us`.
    pub unit: &'static str,
    /// One sample per round, in the order of the rounds.
    pub samples: Vec<f64>,
    /// What is said of the samples.
    #[serde(flatten)]
    pub summary: Summary,
}

/// A limit that the project set itself, and whether this run reached it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bar {
    /// What is compared.
    pub name: String,
    /// What this run found.
    pub value: f64,
    /// The limit; `at_least` says in which direction.
    pub target: f64,
    /// True when `value` should be no smaller than `target`, false when no larger.
    pub at_least: bool,
    /// Whether the limit was reached.
    pub met: bool,
}

/// The whole result of one run of one experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The experiment's name, such as `founding/1`.
    pub experiment: &'static str,
    /// Where it ran.
    pub machine: Machine,
    /// Variants by name; for each, its quantities by name.
    pub variants: BTreeMap<String, BTreeMap<String, Series>>,
    /// Ratios by name, each with its 95 % interval.
    pub ratios: BTreeMap<String, Ratio>,
    /// Plain counts by name.
    pub counters: BTreeMap<String, f64>,
    /// The limits, and whether they were reached.
    pub bars: Vec<Bar>,
    /// What a reader must know: what was left out and why.
    pub notes: Vec<String>,
    /// The person ended it: these are the samples until then.
    pub interrupted: bool,
}

impl Outcome {
    /// An empty outcome of `experiment` on this machine.
    pub fn new(experiment: &'static str) -> Outcome {
        Outcome {
            experiment,
            machine: Machine::here(),
            variants: BTreeMap::new(),
            ratios: BTreeMap::new(),
            counters: BTreeMap::new(),
            bars: Vec::new(),
            notes: Vec::new(),
            interrupted: false,
        }
    }

    /// Takes in one series of samples.
    pub fn series(&mut self, variant: &str, quantity: &str, unit: &'static str, samples: Vec<f64>) {
        let summary = Summary::of(&samples);
        self.variants.entry(variant.into()).or_default().insert(
            quantity.into(),
            Series {
                unit,
                samples,
                summary,
            },
        );
    }

    /// The samples of one quantity of one variant; empty if it did not run.
    pub fn samples(&self, variant: &str, quantity: &str) -> &[f64] {
        self.variants
            .get(variant)
            .and_then(|v| v.get(quantity))
            .map_or(&[], |s| &s.samples)
    }

    /// Works out the ratio of `quantity` between two variants under `name`; `None` where one did not run.
    pub fn ratio(&mut self, name: &str, quantity: &str, over: &str, under: &str) -> Option<Ratio> {
        let ratio = Ratio::of(self.samples(over, quantity), self.samples(under, quantity))?;
        self.ratios.insert(name.into(), ratio);
        Some(ratio)
    }

    /// Notes a limit that should be reached from below: `value` ≥ `target`.
    pub fn at_least(&mut self, name: &str, value: f64, target: f64) {
        self.bars.push(Bar {
            name: name.into(),
            value,
            target,
            at_least: true,
            met: value >= target,
        });
    }

    /// Notes a limit that should not be passed: `value` ≤ `target`.
    pub fn at_most(&mut self, name: &str, value: f64, target: f64) {
        self.bars.push(Bar {
            name: name.into(),
            value,
            target,
            at_least: false,
            met: value <= target,
        });
    }

    /// Ratio and lower limit in one, for the common case; does nothing where a variant did not run.
    pub fn ratio_at_least(
        &mut self,
        name: &str,
        quantity: &str,
        over: &str,
        under: &str,
        target: f64,
    ) {
        if let Some(ratio) = self.ratio(name, quantity, over, under) {
            self.at_least(name, ratio.value, target);
        }
    }

    /// Ratio and upper limit in one; does nothing where a variant did not run.
    pub fn ratio_at_most(
        &mut self,
        name: &str,
        quantity: &str,
        over: &str,
        under: &str,
        target: f64,
    ) {
        if let Some(ratio) = self.ratio(name, quantity, over, under) {
            self.at_most(name, ratio.value, target);
        }
    }
}

/// A line of the table: what was measured, in the form of report 5.
pub(crate) fn row(
    f: &mut fmt::Formatter<'_>,
    variant: &str,
    quantity: &str,
    unit: &str,
    s: &Summary,
) -> fmt::Result {
    writeln!(
        f,
        "  {variant:<28} {quantity:<22} {:>12.3} {unit:<8} n={:<3} median={:.3} range=[{:.3},{:.3}] stdev={:.3} cv={:.2}%",
        s.mean, s.count, s.median, s.min, s.max, s.stdev, s.cv_percent
    )
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  ({})", self.experiment, self.machine)?;
        for (variant, quantities) in &self.variants {
            for (quantity, series) in quantities {
                row(f, variant, quantity, series.unit, &series.summary)?;
            }
        }
        for (name, ratio) in &self.ratios {
            writeln!(
                f,
                "  ratio {name:<45} {:>8.3}  [{:.3}, {:.3}]",
                ratio.value, ratio.low, ratio.high
            )?;
        }
        for (name, value) in &self.counters {
            writeln!(f, "  count {name:<45} {value:>12.2}")?;
        }
        for bar in &self.bars {
            let (sign, verdict) = (
                if bar.at_least { "≥" } else { "≤" },
                if bar.met { "met" } else { "NOT MET" },
            );
            writeln!(
                f,
                "  bar   {:<45} {:>12.3} {sign} {:<8} {verdict}",
                bar.name, bar.value, bar.target
            )?;
        }
        self.notes
            .iter()
            .try_for_each(|note| writeln!(f, "  note  {note}"))
    }
}
