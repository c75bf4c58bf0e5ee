//! [`Gate`]: whether a run is worse than another by more than a limit, for use by programs.
//!
//! There are three answers. The interval of the regression lies beyond the limit (too large), within it
//! (small enough), or contains it (undecided: more samples are needed). With only two answers, one of them
//! would also have to cover the undecided cases.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{Comparison, Row, listed};
use crate::stats::trimmed;
use crate::{Error, Result};

/// The allowed regressions.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// The limit of every quantity without its own, in percent. If `None`, such quantities are ignored.
    pub max_regression_percent: Option<f64>,
    /// The limits of single quantities, in percent.
    pub by_quantity: BTreeMap<String, f64>,
}

impl Limits {
    /// The limit of a quantity, in percent.
    pub fn of(&self, quantity: &str) -> Option<f64> {
        self.by_quantity
            .get(quantity)
            .copied()
            .or(self.max_regression_percent)
    }

    /// The quantities with a limit, unless all have one. For
    /// [`Choice::quantities`](super::Choice::quantities).
    pub fn quantities(&self) -> Vec<String> {
        match self.max_regression_percent {
            Some(_) => Vec::new(),
            None => self.by_quantity.keys().cloned().collect(),
        }
    }
}

/// The answer for one row of the comparison, or for all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// No worse than the limit allows.
    Fine,
    /// The samples do not decide.
    NotEnough,
    /// Worse than the limit allows.
    Regression,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Fine => "fine",
            Outcome::NotEnough => "not enough evidence",
            Outcome::Regression => "regression",
        })
    }
}

/// One row's answer.
#[derive(Clone, Debug, Serialize)]
pub struct Gated {
    /// The quantity.
    pub quantity: String,
    /// The series.
    pub series: String,
    /// The limit in percent.
    pub limit_percent: f64,
    /// The estimate of how much worse it is, in percent; negative means better.
    pub worse_percent: f64,
    /// Lower end of its interval.
    pub worse_low_percent: f64,
    /// Upper end of its interval.
    pub worse_high_percent: f64,
    /// The answer.
    pub outcome: Outcome,
}

/// All answers. Its `Display` has one line for each, and one for all together.
#[derive(Clone, Debug, Serialize)]
pub struct Gate {
    /// The worst of all answers.
    pub outcome: Outcome,
    /// Confidence in all answers together.
    pub confidence: f64,
    /// One per row of the comparison, in its order.
    pub rows: Vec<Gated>,
}

impl Gate {
    /// Checks a comparison against limits.
    ///
    /// # Errors
    /// If a limit names a quantity that is not compared, or no quantity has a limit.
    pub fn of(comparison: &Comparison, limits: &Limits) -> Result<Gate> {
        if comparison.rows.is_empty() {
            return Err(Error::new(
                "they contain no samples: an account of the I/O path is not judged",
            ));
        }
        let there: Vec<&str> = comparison
            .rows
            .iter()
            .map(|row| row.quantity.as_str())
            .collect();
        let unknown = limits
            .by_quantity
            .keys()
            .find(|name| !there.contains(&name.as_str()));
        if let Some(name) = unknown {
            let there = listed(&there);
            return Err(Error::new(format!(
                "the limit of '{name}' applies to nothing that is compared: there are {there}"
            )));
        }
        let limited = |row: &Row| Some(gated(row, limits.of(&row.quantity)?));
        let rows: Vec<Gated> = comparison.rows.iter().filter_map(limited).collect();
        let worst = rows.iter().map(|row| row.outcome).max();
        Ok(Gate {
            outcome: worst.ok_or_else(|| Error::new("no quantity has a limit"))?,
            confidence: comparison.confidence,
            rows,
        })
    }
}

fn gated(row: &Row, limit_percent: f64) -> Gated {
    let (worse_percent, low, high) = row.judgement.worse_percent();
    // Too few samples have an interval to show, but it must not decide.
    let decides = row.judgement.smallest_seen_percent.is_finite();
    let outcome = if !decides {
        Outcome::NotEnough
    } else if low > limit_percent {
        Outcome::Regression
    } else if high <= limit_percent {
        Outcome::Fine
    } else {
        Outcome::NotEnough
    };
    Gated {
        quantity: row.quantity.clone(),
        series: row.new.series.clone(),
        limit_percent,
        worse_percent,
        worse_low_percent: low,
        worse_high_percent: high,
        outcome,
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            writeln!(
                f,
                "{} of {}: {}: worse by {:.2} % ({:.2} to {:.2} %), limit {} %",
                row.quantity,
                row.series,
                row.outcome,
                row.worse_percent,
                row.worse_low_percent,
                row.worse_high_percent,
                row.limit_percent
            )?;
        }
        let sure = trimmed(100.0 * self.confidence, 4);
        write!(f, "{} ({sure} % sure)", self.outcome)
    }
}
