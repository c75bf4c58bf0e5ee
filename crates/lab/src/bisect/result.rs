//! [`Outcome`]: the result of a bisection, as text and as JSON.

use std::path::PathBuf;

use serde::Serialize;

use super::Plan;
use super::evidence::{Evidence, Level};
use super::git::Commit;
use crate::record::{Machine, Ratio};
use crate::stats::Summary;

/// The classification of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The good end.
    GoodEnd,
    /// The bad end.
    BadEnd,
    /// On the good end's side.
    Good,
    /// On the bad end's side.
    Bad,
    /// Certainly at neither end. Treated like the nearer end.
    Between,
    /// The pairs do not decide on which side it lies.
    Unclear,
    /// Could not be built or measured.
    Skipped,
}

impl Mark {
    /// Whether the side on which the commit lies is unknown.
    pub fn is_passed_over(self) -> bool {
        matches!(self, Mark::Unclear | Mark::Skipped)
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Mark::GoodEnd => "good end",
            Mark::BadEnd => "bad end",
            Mark::Good => "good",
            Mark::Bad => "bad",
            Mark::Between => "between",
            Mark::Unclear => "unclear",
            Mark::Skipped => "skipped",
        }
    }
}

/// A commit that was examined.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The commit.
    #[serde(flatten)]
    pub commit: Commit,
    /// Its classification.
    pub mark: Mark,
    /// All its figures, summarised as in report 5.
    pub figures: Summary,
    /// Its mean relative to the good end's, from paired runs, with the 95 % interval.
    pub ratio: Option<Ratio>,
    /// The level found by the decision.
    pub level: Option<Level>,
    /// A remark, such as why it was skipped, with the end of the output.
    pub why: Option<String>,
}

/// Two commits measured against each other.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// What it was measured against; `None`: the good end.
    pub beside: Option<Commit>,
    /// Pairs of runs.
    pub pairs: usize,
    /// Its level relative to that commit.
    pub level: Level,
    /// The smallest difference that these pairs could have detected, in percent; infinite if they were too
    /// few.
    pub smallest_seen_percent: f64,
}

impl Trial {
    pub(super) fn of(evidence: &Evidence) -> Trial {
        Trial {
            beside: None,
            pairs: evidence.pairs.pairs(),
            level: evidence.level(),
            smallest_seen_percent: evidence.pairs.judgement().smallest_seen_percent,
        }
    }

    /// The change in words, such as `-4.47 % [-5.01, -3.92] (99.00 % sure), 41 pairs`.
    pub fn change(&self) -> String {
        format!("{}, {} pairs", percent_and_sure(&self.level), self.pairs)
    }
}

/// A confidence, such as `99.34 %`, rounded down so that it is not overstated.
pub(super) fn sure(confidence: f64) -> String {
    format!("{:.2} %", (confidence * 10_000.0).floor() / 100.0)
}

/// A change and its confidence, such as `-4.47 % [-5.01, -3.92] (99.00 % sure)`.
pub(super) fn percent_and_sure(level: &Level) -> String {
    match level.has_interval() {
        true => format!("{} ({} sure)", percent(level), sure(level.confidence)),
        false => percent(level),
    }
}

/// A change, such as `-4.47 % [-5.01, -3.92]`.
pub(super) fn percent(level: &Level) -> String {
    let of = |value: f64| (value - 1.0) * 100.0;
    if !level.value.is_finite() {
        return "unknown".to_owned();
    }
    if !level.has_interval() {
        return format!("{:+.2} %", of(level.value));
    }
    format!(
        "{:+.2} % [{:+.2}, {:+.2}]",
        of(level.value),
        of(level.low),
        of(level.high)
    )
}

/// The kinds of answers of a bisection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// One commit made the change, or its largest part. It was confirmed against its parent.
    Commit,
    /// One of several commits made the change. Those in between could not be built, measured or classified.
    Several,
    /// The search ended at a commit that shows no change compared with its parent.
    Unconfirmed,
    /// The ends differ by no more than the threshold.
    NoDifference,
    /// The pairs do not show whether the ends differ.
    NotEnough,
    /// The ends differ, but the size of the difference is too uncertain to classify commits by it.
    TooVague,
    /// The bad end is better than the good one.
    Better,
}

/// The answer of a bisection.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Its kind.
    pub verdict: Answer,
    /// The commits in question, oldest first.
    pub suspects: Vec<Commit>,
    /// The last of them, measured against the one before; without any, the ends.
    pub trial: Trial,
}

/// What a bisection found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The answer.
    #[serde(flatten)]
    pub found: Found,
    /// Confidence in all decisions together: the probability that none is wrong is at least this. `None` if
    /// they led to no answer.
    pub confidence: Option<f64>,
    /// The level of the bad end.
    pub bad_level: Level,
    /// The number of commits between the ends, including the bad one.
    pub commits: usize,
    /// All examined commits, in the order of history.
    pub steps: Vec<Step>,
    /// Notes that the reader needs to interpret the result.
    pub notes: Vec<String>,
    /// What was bisected.
    pub plan: Plan,
    /// The directory of the logs.
    pub state: PathBuf,
    /// The machine on which the commits were measured.
    pub machine: Machine,
}

impl Outcome {
    pub(super) fn take_notes(&mut self) {
        let whole = percent(&self.bad_level);
        let short = self
            .found
            .suspects
            .last()
            .map_or("", |commit| &commit.short);
        match self.found.verdict {
            Answer::Commit if self.is_part() => self.notes.push(format!(
                "{short} caused only a part of the whole change ({whole}): other commits in the range made it \
                 worse too. Bisect on both sides of it: --good {short} with the same bad commit, and --bad \
                 {short}^ with the same good commit"
            )),
            Answer::Unconfirmed => self.notes.push(format!(
                "its parents count as good because they are ancestors of a good commit or were classified \
                 as good; compared with one of them, {short} shows no change. A branch that started before \
                 the good commit may still have older slow code: --first-parent considers only the merges"
            )),
            _ => {}
        }
        let over = self.steps.iter().filter(|step| step.mark.is_passed_over());
        match over.count() {
            0 => {}
            over => self.notes.push(format!("commits skipped: {over}")),
        }
    }

    /// Whether a commit certainly made less than the whole change.
    fn is_part(&self) -> bool {
        let trial = &self.found.trial;
        let size = |level: f64| level.ln().abs();
        trial.level.excludes(self.bad_level.value)
            && self.bad_level.excludes(trial.level.value)
            && size(trial.level.value) < size(self.bad_level.value)
    }
}
