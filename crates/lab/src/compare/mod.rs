//! [`Comparison`]: runs of two sides, or two series of the same runs, compared quantity by quantity, each
//! with a verdict.
//!
//! Invariants:
//! - Series of one run are compared by pairs of samples from the same round. Runs are compared by pairs of
//!   runs, each reduced to its median: a run's own conditions (where its files lie, what else the machine
//!   did) affect all of its samples, so these are not independent samples of "a run". One run per side is one
//!   pair, which proves nothing.
//! - Two runs form a pair if they were taken one right after the other (`turns`). If all runs of one side
//!   came before those of the other, a change of the machine in between would look like a difference between
//!   the sides.
//! - A run that stopped early because of its results is judged at its own looks.
//! - The requested confidence holds for all verdicts together: each gets its share of the error probability
//!   (Bonferroni). If nothing differs, a table of twenty quantities raises no more false alarms than one of a
//!   single quantity.
//! - No sample is dropped.

mod differences;
mod gate;
mod show;
mod side;
mod turns;

use clap::Args;
use serde::Serialize;

use crate::percent::confidence;
use crate::record::{Column, Head, Record};
use crate::stats::{Judgement, Pairs, Question, Summary, judge, judge_at_looks};
use crate::{Error, Result};

pub use gate::{Gate, Gated, Limits, Outcome};
use side::Group;

/// What to compare, and with what confidence.
#[derive(Args, Clone, Debug)]
pub struct Choice {
    /// For files, compare only this series, which all must have; may be given several times [default: all
    /// common series]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["base_series", "new_series"])]
    pub series: Vec<String>,
    /// Compare only this quantity; may be given several times [default: for files, all; for targets,
    /// throughput; for commands, time or figure]
    #[arg(long = "quantity", value_name = "NAME")]
    pub quantities: Vec<String>,
    /// The base series, if the two series have different names or are in one file
    #[arg(long = "base-series", id = "base_series", value_name = "NAME")]
    pub base: Option<String>,
    /// The series to compare with it
    #[arg(long = "new-series", id = "new_series", value_name = "NAME")]
    pub new: Option<String>,
    /// For files, skip the first rounds as warm-up
    #[arg(long = "skip", value_name = "ROUNDS", default_value_t = 0)]
    pub skip_rounds: u32,
    /// Differences up to this size count as none, in percent.
    #[arg(skip = Question::DEFAULT_THRESHOLD_PERCENT)]
    pub threshold_percent: f64,
    /// Required confidence of all answers together, in percent
    #[arg(long, value_name = "PERCENT", default_value = "99.5", value_parser = confidence)]
    pub confidence: f64,
}

impl Default for Choice {
    fn default() -> Choice {
        Choice {
            series: Vec::new(),
            quantities: Vec::new(),
            base: None,
            new: None,
            skip_rounds: 0,
            threshold_percent: Question::DEFAULT_THRESHOLD_PERCENT,
            confidence: Question::DEFAULT_CONFIDENCE,
        }
    }
}

/// One side of a row.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// The series.
    pub series: String,
    /// Summary of its samples; with several runs, of their medians.
    #[serde(flatten)]
    pub summary: Summary,
}

/// One quantity, compared between two runs or two series.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The quantity.
    pub quantity: String,
    /// Its unit; empty for a plain number.
    pub unit: String,
    /// The side compared against.
    pub base: Side,
    /// The side being compared.
    pub new: Side,
    /// The verdict and its basis.
    pub judgement: Judgement,
}

/// The source of one side.
#[derive(Clone, Debug, Serialize)]
pub struct Source {
    /// The file, as named by the user.
    pub name: String,
    /// What was run, where and how.
    pub head: Head,
}

/// Two sides compared. Its `Display` is the table.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The runs of the base: one or several.
    pub base: Vec<Source>,
    /// The runs of the new side; empty if both sides come from the same runs.
    pub new: Vec<Source>,
    /// Warnings that the reader needs before trusting a verdict.
    pub warnings: Vec<String>,
    /// Confidence in all verdicts together.
    pub confidence: f64,
    /// The rows, ordered by quantity, then series.
    pub rows: Vec<Row>,
}

/// A run and the name to show: that of its file.
pub type Run<'a> = (&'a str, &'a Record);

impl Comparison {
    /// Compares the runs of two sides, in any order.
    ///
    /// # Errors
    /// If a side has no run, or the two share nothing that was selected. The message lists what there is.
    pub fn of_runs(base: &[Run<'_>], new: &[Run<'_>], choice: &Choice) -> Result<Comparison> {
        let (Some(first), Some(other)) = (base.first(), new.first()) else {
            return Err(Error::new(
                "one side has no run: there is nothing to compare",
            ));
        };
        let mut comparison = Comparison::empty(base, new, choice);
        let (theirs, ours) = (side::groups(base, choice)?, side::groups(new, choice)?);
        let partners = match (&choice.base, &choice.new) {
            (None, None) => in_common(&theirs, &ours, choice)?,
            (from, to) => {
                let from = chosen(first.0, &theirs, from.as_deref().or(to.as_deref()))?;
                let to = chosen(other.0, &ours, to.as_deref().or(Some(&from)))?;
                vec![(from, to)]
            }
        };
        let turns = turns::pairs(base, new);
        if base.len().max(new.len()) > 1 {
            comparison.warnings.extend(turns.warning());
        }
        let judged = |base: &Group, new: &Group, question: &Question| {
            let (from, to) = (base.figures(), new.figures());
            let pairs = turns.pairs.iter().map(|(i, j)| (from[*i], to[*j]));
            by_runs(pairs.unzip(), question)
        };
        comparison.compare((&theirs, &ours), &partners, choice, &judged)?;
        Ok(comparison)
    }

    /// Compares two series of one run, or of each of several runs; [`Choice::base`] and [`Choice::new`] name
    /// them.
    ///
    /// # Errors
    /// If there is no run, a series is missing, or the two share no quantity. The message lists what there
    /// is.
    pub fn within(runs: &[Run<'_>], choice: &Choice) -> Result<Comparison> {
        let first = runs.first();
        let first = first.ok_or_else(|| Error::new("there is no run to compare"))?;
        let mut comparison = Comparison::empty(runs, &[], choice);
        let groups = side::groups(runs, choice)?;
        let (Some(from), Some(to)) = (&choice.base, &choice.new) else {
            return Err(Error::new(format!(
                "only one run is given: name the two of its series to compare, the base and the new; there \
                 are {}",
                listed(&series_of(&groups))
            )));
        };
        let from = chosen(first.0, &groups, Some(from))?;
        let to = chosen(first.0, &groups, Some(to))?;
        let judged = |base: &Group, new: &Group, question: &Question| {
            let of_run = |((base, new), run): ((&Column, &Column), &Run<'_>)| {
                let (from, to) = base.paired(new);
                match run.1.head.max_rounds {
                    Some(most) => judge_at_looks(&from, &to, question, most as usize),
                    None => judge(&from, &to, question),
                }
            };
            let each = base.runs.iter().zip(&new.runs).zip(runs);
            let mut each: Vec<Judgement> = each.map(of_run).collect();
            match each.len() {
                1 => each.remove(0),
                _ => by_runs(each.iter().map(|run| (1.0, run.ratio)).unzip(), question),
            }
        };
        comparison.compare((&groups, &groups), &[(from, to)], choice, &judged)?;
        Ok(comparison)
    }

    fn empty(base: &[Run<'_>], new: &[Run<'_>], choice: &Choice) -> Comparison {
        let source = |(name, record): &Run<'_>| Source {
            name: (*name).to_owned(),
            head: record.head.clone(),
        };
        Comparison {
            base: base.iter().map(source).collect(),
            new: new.iter().map(source).collect(),
            warnings: differences::between(base, new),
            confidence: choice.confidence,
            rows: Vec::new(),
        }
    }
}

/// The names of the series, without repeats.
fn series_of(groups: &[Group]) -> Vec<&str> {
    let mut names: Vec<&str> = groups.iter().map(|group| group.series.as_str()).collect();
    names.dedup();
    names
}

/// The names of the series that both have. If each side has only one series, those two.
fn in_common(base: &[Group], new: &[Group], choice: &Choice) -> Result<Vec<(String, String)>> {
    let (theirs, ours) = (series_of(base), series_of(new));
    for name in &choice.series {
        if !(theirs.contains(&name.as_str()) && ours.contains(&name.as_str())) {
            return Err(Error::new(format!(
                "series '{name}' is not in both: {} and {}",
                listed(&theirs),
                listed(&ours)
            )));
        }
    }
    let wanted =
        |name: &&&str| choice.series.is_empty() || choice.series.iter().any(|s| s == **name);
    let both = theirs
        .iter()
        .filter(|name| ours.contains(name))
        .filter(wanted);
    let both: Vec<(String, String)> = both.map(|name| ((*name).into(), (*name).into())).collect();
    match (both.is_empty(), &theirs[..], &ours[..]) {
        (false, ..) => Ok(both),
        (true, [one], [other]) => Ok(vec![((*one).into(), (*other).into())]),
        _ => Err(Error::new(format!(
            "no series is in both, and one has several: name the base and the new; there are {} and {}",
            listed(&theirs),
            listed(&ours)
        ))),
    }
}

/// The name of the series with this name, or of the only one.
fn chosen(run: &str, groups: &[Group], name: Option<&str>) -> Result<String> {
    let there = series_of(groups);
    match (name, &there[..]) {
        (Some(name), _) if there.contains(&name) => Ok(name.to_owned()),
        (Some(name), _) => Err(Error::new(format!(
            "{run} has no series '{name}': there are {}",
            listed(&there)
        ))),
        (None, [one]) => Ok((*one).to_owned()),
        (None, _) => Err(Error::new(format!(
            "{run} has several series: {}",
            listed(&there)
        ))),
    }
}

/// Judges two groups.
type Judge<'a> = dyn Fn(&Group, &Group, &Question) -> Judgement + 'a;

/// Judges figures of runs.
fn by_runs((from, to): (Vec<f64>, Vec<f64>), question: &Question) -> Judgement {
    Judgement {
        of: Pairs::Runs,
        ..judge(&from, &to, question)
    }
}

impl Comparison {
    /// Adds a row for each quantity that partners share.
    fn compare(
        &mut self,
        (theirs, ours): (&[Group], &[Group]),
        partners: &[(String, String)],
        choice: &Choice,
        judged: &Judge<'_>,
    ) -> Result<()> {
        let mut pairs = Vec::new();
        for (from, to) in partners {
            for base in theirs.iter().filter(|group| group.series == *from) {
                let same = |new: &&Group| new.series == *to && new.quantity == base.quantity;
                let Some(new) = ours.iter().find(same) else {
                    continue;
                };
                if base.unit != new.unit {
                    self.warnings.push(format!(
                        "'{}' has the unit '{}' on one side and '{}' on the other: not compared",
                        base.quantity, base.unit, new.unit
                    ));
                    continue;
                }
                pairs.push((base, new));
            }
        }
        let there: Vec<&str> = pairs
            .iter()
            .map(|(base, _)| base.quantity.as_str())
            .collect();
        if let Some(name) = choice
            .quantities
            .iter()
            .find(|name| !there.contains(&name.as_str()))
        {
            return Err(Error::new(format!(
                "quantity '{name}' is not in both: both have {}",
                listed(&there)
            )));
        }
        if pairs.is_empty() {
            return Err(Error::new("the two have no quantity in common"));
        }
        let wanted =
            |name: &String| choice.quantities.is_empty() || choice.quantities.contains(name);
        pairs.retain(|(base, _)| wanted(&base.quantity));
        pairs.sort_by(|a, b| (&a.0.quantity, &a.0.series).cmp(&(&b.0.quantity, &b.0.series)));
        let each = 1.0 - (1.0 - choice.confidence) / pairs.len() as f64;
        self.rows.extend(pairs.into_iter().map(|(base, new)| {
            let question = Question {
                better: base.better,
                threshold_percent: choice.threshold_percent,
                confidence: each,
            };
            Row {
                quantity: base.quantity.clone(),
                unit: base.unit.clone(),
                base: base.side(),
                new: new.side(),
                judgement: judged(base, new, &question),
            }
        }));
        Ok(())
    }
}

/// Names as a list, such as `'a', 'b' and 'c'`, without repeats.
fn listed(names: &[&str]) -> String {
    let mut quoted: Vec<String> = Vec::new();
    for name in names {
        let name = format!("'{name}'");
        if !quoted.contains(&name) {
            quoted.push(name);
        }
    }
    match quoted.split_last() {
        None => "none".into(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests;
