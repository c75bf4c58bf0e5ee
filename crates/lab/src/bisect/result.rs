//! [`Outcome`]: what a bisection found, for people, for scripts, and as a record of the lab.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Plan;
use super::evidence::{Evidence, Level};
use super::git::Commit;
use super::state::Pair;
use crate::machine::Machine;
use crate::record::{Head, Line, Record, Sample};
use crate::stats::{Ratio, Summary};

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The good end.
    GoodEnd,
    /// The bad end.
    BadEnd,
    /// It lies on the good end's side.
    Good,
    /// It lies on the bad end's side.
    Bad,
    /// It is certain that it lies at neither end; it counts as the one that it is nearer to.
    Between,
    /// The pairs do not say on which side it lies: it was passed over.
    Unclear,
    /// It could not be built or measured: it was passed over.
    Skipped,
}

impl Mark {
    /// Whether nothing is known of it.
    pub fn is_passed_over(self) -> bool {
        matches!(self, Mark::Unclear | Mark::Skipped)
    }

    /// As a table has it.
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

/// A commit that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Which.
    #[serde(flatten)]
    pub commit: Commit,
    /// What became of it.
    pub mark: Mark,
    /// All figures of it, as report 5 has them.
    pub figures: Summary,
    /// Its mean over that of the good end, of the runs beside each other, with the 95 % interval.
    pub ratio: Option<Ratio>,
    /// Where the decision saw it.
    pub level: Option<Level>,
    /// What is to be said beyond that: why it was skipped, with the end of what was printed.
    pub why: Option<String>,
}

impl Step {
    /// From pairs beside the good end, and all values.
    pub(super) fn new(
        commit: Commit,
        mark: Mark,
        (pairs, values): (&[(f64, f64)], &[f64]),
        level: Option<Level>,
        why: Option<String>,
    ) -> Step {
        let mut step = Step {
            commit,
            mark,
            figures: Summary::of(&[]),
            ratio: None,
            level,
            why,
        };
        step.summarise(pairs, values);
        step
    }

    /// The same, of all figures that there are by now.
    pub(super) fn summarise(&mut self, pairs: &[(f64, f64)], values: &[f64]) {
        let (base, new): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        self.figures = Summary::of(values);
        self.ratio = Ratio::of(&new, &base);
    }
}

/// Two commits, measured beside each other.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// What it was measured beside; `None`: the good end.
    pub beside: Option<Commit>,
    /// Pairs of runs.
    pub pairs: usize,
    /// How it lies to what it was measured beside.
    pub level: Level,
    /// The smallest difference that these pairs could have seen, in percent; infinite where they were too few.
    pub smallest_seen_percent: f64,
}

impl Trial {
    pub(super) fn of(evidence: &Evidence) -> Trial {
        Trial {
            beside: None,
            pairs: evidence.pairs(),
            level: evidence.level(),
            smallest_seen_percent: evidence.judgement().smallest_seen_percent,
        }
    }

    /// `-4.47 % [-5.01, -3.92] (99.00 % sure), 41 pairs`.
    pub fn change(&self) -> String {
        format!("{}, {} pairs", percent_and_sure(&self.level), self.pairs)
    }
}

/// `99.34 %`, rounded down: never surer than it is.
pub(super) fn sure(confidence: f64) -> String {
    format!("{:.2} %", (confidence * 10_000.0).floor() / 100.0)
}

/// `-4.47 % [-5.01, -3.92] (99.00 % sure)`.
pub(super) fn percent_and_sure(level: &Level) -> String {
    match level.has_interval() {
        true => format!("{} ({} sure)", percent(level), sure(level.confidence)),
        false => percent(level),
    }
}

/// `-4.47 % [-5.01, -3.92]`.
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

/// The answer.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Found {
    /// One commit made the change, or the largest part of it, and its parent beside it shows it.
    Commit {
        /// The commit.
        culprit: Commit,
        /// Beside its parent.
        trial: Trial,
    },
    /// One of these did: those between them could not be built, measured or sorted. The oldest first.
    Several {
        /// The commits.
        suspects: Vec<Commit>,
        /// The last of them beside the nearest good one.
        trial: Trial,
    },
    /// The halving ends at this commit, but beside its parent it shows no change.
    Unconfirmed {
        /// The commit.
        culprit: Commit,
        /// Beside its parent.
        trial: Trial,
    },
    /// The ends differ by no more than the threshold.
    NoDifference(Trial),
    /// Whether the ends differ could not be seen.
    NotEnough(Trial),
    /// The ends differ, but by how much is not known well enough to sort commits by it.
    TooVague(Trial),
    /// The bad end is better than the good one.
    Better(Trial),
}

impl Found {
    /// In a line, where the ends were found not to be what they were said to be.
    pub(super) fn in_short(&self) -> String {
        match self {
            Found::Commit { culprit, .. } | Found::Unconfirmed { culprit, .. } => {
                culprit.short.clone()
            }
            Found::Several { suspects, .. } => format!("one of {} commits", suspects.len()),
            Found::NoDifference(trial) => format!("no difference ({})", trial.change()),
            Found::NotEnough(trial) => format!("no difference can be seen ({})", trial.change()),
            Found::TooVague(trial) => format!(
                "the difference is not known well enough ({})",
                trial.change()
            ),
            Found::Better(trial) => format!("the bad one is better ({})", trial.change()),
        }
    }
}

/// What a bisection found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The answer.
    #[serde(flatten)]
    pub found: Found,
    /// How sure all decisions together are: that none is wrong is at least so probable. `None` where they did not lead to an
    /// answer.
    pub confidence: Option<f64>,
    /// Where the bad end lies.
    pub bad_level: Level,
    /// Commits between the ends, the bad one among them.
    pub commits: usize,
    /// All that were looked at, in the order of history.
    pub steps: Vec<Step>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// What was asked.
    pub plan: Option<Plan>,
    /// Where the logs are.
    pub state: PathBuf,
    /// The machine.
    pub machine: Machine,
}

impl Outcome {
    pub(super) fn new(
        found: Found,
        steps: Vec<Step>,
        bad_level: Level,
        confidence: f64,
        commits: usize,
    ) -> Outcome {
        let sure = !matches!(
            found,
            Found::Unconfirmed { .. } | Found::NotEnough(_) | Found::TooVague(_)
        );
        let mut outcome = Outcome {
            confidence: sure.then_some(confidence),
            found,
            bad_level,
            commits,
            steps,
            notes: Vec::new(),
            plan: None,
            state: PathBuf::new(),
            machine: Machine::here(),
        };
        outcome.take_notes();
        outcome
    }

    /// Takes in what was asked, and where the rest is.
    pub(super) fn describe(&mut self, plan: &Plan, state: &Path) {
        self.plan = Some(plan.clone());
        state.clone_into(&mut self.state);
    }

    fn take_notes(&mut self) {
        let whole = percent(&self.bad_level);
        match &self.found {
            Found::Commit { culprit, trial } if self.is_part(trial) => self.notes.push(format!(
                "{} made only a part of the whole change ({whole}): others between the ends made it worse too. \
                 Look on either side of it: --good {} with the same bad end, and --bad {}^ with the same good end",
                culprit.short, culprit.short, culprit.short
            )),
            Found::Unconfirmed { culprit, .. } => self.notes.push(format!(
                "its parents count as good since they come before a good commit, or were sorted as good; beside one of them {} \
                 shows no change. On a branch that left before the good end, what was slow then may still be slow: \
                 --first-parent looks at the merges alone",
                culprit.short
            )),
            _ => {}
        }
        let over = self
            .steps
            .iter()
            .filter(|step| step.mark.is_passed_over())
            .count();
        if over > 0 {
            let word = if over == 1 {
                "commit was"
            } else {
                "commits were"
            };
            self.notes.push(format!("{over} {word} passed over"));
        }
    }

    /// Whether it is certain that a commit made less than the whole change.
    fn is_part(&self, trial: &Trial) -> bool {
        let size = |level: f64| level.ln().abs();
        trial.level.excludes(self.bad_level.value)
            && self.bad_level.excludes(trial.level.value)
            && size(trial.level.value) < size(self.bad_level.value)
    }

    /// All samples as a record, as the lab's other parts read it: a series for each commit, a round for each pair.
    pub(super) fn record<'a>(
        &self,
        plan: &Plan,
        pairs: impl Iterator<Item = &'a Pair>,
        started: &str,
    ) -> Record {
        let short = |id: &str| {
            let step = self.steps.iter().find(|step| step.commit.id == id);
            step.map_or_else(
                || id.chars().take(12).collect(),
                |step| step.commit.short.clone(),
            )
        };
        let mut lines = Vec::new();
        for (round, pair) in (1..).zip(pairs) {
            for (id, value) in [(&pair.base, pair.base_value), (&pair.new, pair.new_value)] {
                lines.push(Line::Sample(Sample {
                    series: short(id),
                    quantity: "measure".to_owned(),
                    unit: String::new(),
                    better: plan.terms.better,
                    round,
                    value,
                    at_s: None,
                }));
            }
        }
        let note = |text: String| Line::Note { text };
        lines.extend(self.to_string().lines().map(|line| note(line.to_owned())));
        lines.push(Line::End {
            why: "certain".into(),
        });
        let mut settings = BTreeMap::new();
        if let Ok(serde_json::Value::Object(plan)) = serde_json::to_value(plan) {
            settings.extend(plan);
        }
        let mut head = Head::new("bisect", started, settings);
        head.machine = self.machine.clone();
        Record { head, lines }
    }
}
