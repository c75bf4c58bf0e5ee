//! [`Comparison`]: two runs side by side, or two series of one run, quantity by quantity, each with a verdict.
//!
//! Invariants:
//! - Series of one run are compared by pairs of the same round; of two runs, as sets that were taken apart.
//! - The confidence that was asked for holds for all verdicts together: each is judged with its share of the error
//!   probability (Bonferroni's), so that a table of twenty quantities is as silent, where nothing differs, as one of one.
//! - Nothing is dropped silently: what looks like warming up or lies far out is named, and counted in.
//! - What the I/O path did, as `explain` keeps it, stands side by side and is not judged: it was watched once.

mod accounts;
mod differences;
mod gate;
mod show;

use serde::Serialize;

use crate::explain::Account;
use crate::record::{Better, Column, Head, Record};
use crate::stats::{
    Judgement, Outlier, Question, Summary, judge, judge_separate, outliers, warm_up,
};
use crate::{Error, Result};

pub use gate::{Gate, Gated, Limits, Outcome};

/// What is to be compared, and how sure the answer must be.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The series, by name; none: all that both have.
    pub series: Vec<String>,
    /// The quantities, by name; none: all that both have.
    pub quantities: Vec<String>,
    /// The series of the base, where it has not the name of the one that it is compared with.
    pub base: Option<String>,
    /// The series that is compared with it.
    pub new: Option<String>,
    /// Rounds at the start that are not counted: what warmed up.
    pub skip_rounds: u32,
    /// A difference no larger than this is none, in percent.
    pub threshold_percent: f64,
    /// How sure all verdicts together must be.
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
    /// What is said of its samples.
    #[serde(flatten)]
    pub summary: Summary,
    /// How many samples at the start look like warming up; they are counted in.
    pub warm_up_samples: usize,
    /// Samples that lie outside; they are counted in. `index` counts the samples that are compared, from 0.
    pub outliers: Vec<Outlier>,
}

/// One quantity of one series, or of one and another, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub quantity: String,
    /// Its unit; empty for a plain number.
    pub unit: String,
    /// What it is compared with.
    pub base: Side,
    /// What is compared.
    pub new: Side,
    /// The verdict, and what it rests on.
    pub judgement: Judgement,
}

/// Where one side comes from.
#[derive(Clone, Debug, Serialize)]
pub struct Source {
    /// The file, as it was named.
    pub name: String,
    /// What was run, where and how.
    pub head: Head,
}

/// Two sides compared. Its `Display` is the table.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Where the base comes from.
    pub base: Source,
    /// Where the new comes from; `None`: from the same run.
    pub new: Option<Source>,
    /// What a reader must know before he believes a verdict.
    pub warnings: Vec<String>,
    /// How sure all verdicts together are.
    pub confidence: f64,
    /// The rows, ordered by quantity, then series.
    pub rows: Vec<Row>,
    /// What the I/O path did, the base's accounts first; none where not both have one. Where they come from two runs, the
    /// names of their series begin with `base: ` and `new: `.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<Account>,
}

impl Comparison {
    /// Compares two runs, each with the name it is to be called by: its file's.
    ///
    /// # Errors
    /// Where they have nothing in common that was asked for; says what there is.
    pub fn of_two(
        base: (&str, &Record),
        new: (&str, &Record),
        choice: &Choice,
    ) -> Result<Comparison> {
        let accounts = accounts::of_two(base.1, new.1, choice);
        let (theirs, ours) = (columns(base.1, choice), columns(new.1, choice));
        let nothing_measured = theirs.is_empty() || ours.is_empty();
        if nothing_measured && choice.quantities.is_empty() && !accounts.is_empty() {
            return Ok(Comparison {
                base: source(base),
                new: Some(source(new)),
                warnings: differences::between(base, new),
                confidence: choice.confidence,
                rows: Vec::new(),
                accounts,
            });
        }
        holds_samples(base.0, &theirs)?;
        holds_samples(new.0, &ours)?;
        let partners = match (&choice.base, &choice.new) {
            (None, None) => in_common(&theirs, &ours, choice)?,
            (from, to) => {
                let from = chosen(base.0, &theirs, from.as_deref().or(to.as_deref()))?;
                let to = chosen(new.0, &ours, to.as_deref().or(Some(&from)))?;
                vec![(from, to)]
            }
        };
        let mut warnings = differences::between(base, new);
        let sides = Sides {
            base: &theirs,
            new: &ours,
            apart: true,
        };
        let rows = sides.rows(&partners, choice, &mut warnings)?;
        Ok(Comparison {
            base: source(base),
            new: Some(source(new)),
            warnings,
            confidence: choice.confidence,
            rows,
            accounts,
        })
    }

    /// Compares two series of one run, which [`Choice::base`] and [`Choice::new`] name.
    ///
    /// # Errors
    /// Where there are no such series, or they have no quantity in common; says what there is.
    pub fn within(run: (&str, &Record), choice: &Choice) -> Result<Comparison> {
        let columns = columns(run.1, choice);
        let accounts = accounts::within(run.1, choice);
        if columns.is_empty() && choice.quantities.is_empty() && !accounts.is_empty() {
            return Ok(Comparison {
                base: source(run),
                new: None,
                warnings: differences::of_one(run),
                confidence: choice.confidence,
                rows: Vec::new(),
                accounts,
            });
        }
        holds_samples(run.0, &columns)?;
        let (Some(from), Some(to)) = (&choice.base, &choice.new) else {
            return Err(Error::new(format!(
                "one run alone: say which of its series are to be compared, the base and the new; there are {}",
                listed(&series_of(&columns))
            )));
        };
        let from = chosen(run.0, &columns, Some(from))?;
        let to = chosen(run.0, &columns, Some(to))?;
        let mut warnings = differences::of_one(run);
        let sides = Sides {
            base: &columns,
            new: &columns,
            apart: false,
        };
        let rows = sides.rows(&[(from, to)], choice, &mut warnings)?;
        Ok(Comparison {
            base: source(run),
            new: None,
            warnings,
            confidence: choice.confidence,
            rows,
            accounts,
        })
    }
}

fn source((name, record): (&str, &Record)) -> Source {
    Source {
        name: name.to_owned(),
        head: record.head.clone(),
    }
}

/// The run's columns, without the rounds that are not to be counted.
fn columns(record: &Record, choice: &Choice) -> Vec<Column> {
    let mut columns = record.columns();
    for column in &mut columns {
        column
            .samples
            .retain(|(round, _)| *round > choice.skip_rounds);
    }
    columns.retain(|column| !column.samples.is_empty());
    columns
}

fn holds_samples(name: &str, columns: &[Column]) -> Result<()> {
    match columns.is_empty() {
        true => Err(Error::new(format!("{name} holds no samples to compare"))),
        false => Ok(()),
    }
}

/// The names of the series, each once.
fn series_of(columns: &[Column]) -> Vec<&str> {
    let mut names: Vec<&str> = columns
        .iter()
        .map(|column| column.series.as_str())
        .collect();
    names.dedup();
    names
}

/// The series that both have, or, where each has but one, those two.
fn in_common(base: &[Column], new: &[Column], choice: &Choice) -> Result<Vec<(String, String)>> {
    let (theirs, ours) = (series_of(base), series_of(new));
    for name in &choice.series {
        if !(theirs.contains(&name.as_str()) && ours.contains(&name.as_str())) {
            return Err(Error::new(format!(
                "not both have a series '{name}': {} and {}",
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
            "no series is in both, and several are in one: say which is the base and which the new; there are {} and {}",
            listed(&theirs),
            listed(&ours)
        ))),
    }
}

/// The series of this name, or the only one.
fn chosen(run: &str, columns: &[Column], name: Option<&str>) -> Result<String> {
    let there = series_of(columns);
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

/// The columns of both sides.
struct Sides<'a> {
    base: &'a [Column],
    new: &'a [Column],
    /// The two were taken in separate runs.
    apart: bool,
}

impl Sides<'_> {
    fn rows(
        &self,
        partners: &[(String, String)],
        choice: &Choice,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Row>> {
        let mut pairs = Vec::new();
        for (from, to) in partners {
            for base in self.base.iter().filter(|column| column.series == *from) {
                let same = |new: &&Column| new.series == *to && new.quantity == base.quantity;
                let Some(new) = self.new.iter().find(same) else {
                    continue;
                };
                if base.unit != new.unit {
                    warnings.push(format!(
                        "'{}' is in '{}' here and in '{}' there: not compared",
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
                "not both have a quantity '{name}': both have {}",
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
        let row =
            |(base, new): &(&Column, &Column)| self.row(base, new, choice.threshold_percent, each);
        Ok(pairs.iter().map(row).collect())
    }

    fn row(&self, base: &Column, new: &Column, threshold_percent: f64, confidence: f64) -> Row {
        let question = Question {
            better: base.better,
            threshold_percent,
            confidence,
        };
        let judgement = if self.apart {
            judge_separate(&base.values(), &new.values(), &question)
        } else {
            let (from, to) = base.paired(new);
            judge(&from, &to, &question)
        };
        Row {
            quantity: base.quantity.clone(),
            unit: base.unit.clone(),
            base: side(base),
            new: side(new),
            judgement,
        }
    }
}

fn side(column: &Column) -> Side {
    let values = column.values();
    Side {
        series: column.series.clone(),
        summary: Summary::of(&values),
        warm_up_samples: warm_up(&values),
        outliers: outliers(&values),
    }
}

impl Row {
    /// How much worse the new is, in percent: the likely value, the least and the most. Better is below 0.
    pub fn worse_percent(&self) -> (f64, f64, f64) {
        let found = &self.judgement;
        let (low, high) = (found.low_percent(), found.high_percent());
        match found.better {
            Better::Higher => (-found.change_percent, -high, -low),
            Better::Lower => (found.change_percent, low, high),
        }
    }
}

/// `'a', 'b' and 'c'`, each once.
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
