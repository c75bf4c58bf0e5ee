//! What is asked of two sets of samples, and what is answered.

use std::fmt;

use serde::Serialize;

use super::ranks::fewest_pairs;
use crate::record::Better;

/// What is asked: is `new` better or worse than `base`?
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Question {
    /// Which way the quantity is good.
    pub better: Better,
    /// A difference no larger than this is none, in percent; at least 0.
    pub threshold_percent: f64,
    /// How sure an answer must be: 0.995 is wrong in 5 of 1000 runs at the most. Above 0.5 and below 1.
    pub confidence: f64,
}

impl Question {
    /// Half of what the project allows itself, one false alarm in a hundred runs: so that a hundred runs seldom show two.
    pub const DEFAULT_CONFIDENCE: f64 = 0.995;
    /// A percent: less is seldom worth a change, and seldom to be seen.
    pub const DEFAULT_THRESHOLD_PERCENT: f64 = 1.0;

    /// The question at the default confidence and threshold.
    pub fn new(better: Better) -> Question {
        Question {
            better,
            threshold_percent: Question::DEFAULT_THRESHOLD_PERCENT,
            confidence: Question::DEFAULT_CONFIDENCE,
        }
    }

    /// How often an answer may be wrong; a confidence that is none counts as the default.
    pub(super) fn alpha(&self) -> f64 {
        let alpha = 1.0 - self.confidence;
        match alpha > 1e-12 && alpha < 0.5 {
            true => alpha,
            false => 1.0 - Question::DEFAULT_CONFIDENCE,
        }
    }

    /// The fewest pairs that can answer with this confidence.
    pub fn fewest_pairs(&self) -> usize {
        fewest_pairs(self.alpha())
    }
}

impl Default for Question {
    fn default() -> Question {
        Question::new(Better::Higher)
    }
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// `new` is better.
    Faster,
    /// `new` is worse.
    Slower,
    /// If there is a difference, it is no larger than the threshold.
    NoDifference,
    /// The samples do not say.
    NotEnough,
}

/// As a person calls it.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::NoDifference => "no difference",
            Verdict::NotEnough => "not enough evidence",
        })
    }
}

/// What was paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairs {
    /// Samples of one round of one run.
    Samples,
    /// Runs, each as one figure.
    Runs,
}

/// The answer, and what it rests on. Its `Display` is a sentence.
///
/// In JSON a figure that is not finite is `null`: an end of an interval that could not be told, or the ratio of nothing.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// By how much the typical `new` differs from the typical `base` of its round: new / base, by the estimate of Hodges and
    /// Lehmann, which a few wild samples do not move as they move a mean. NaN where there is no sample.
    pub ratio: f64,
    /// The same in percent: −4.5 is 4.5 % less.
    pub change_percent: f64,
    /// Lower end of the ratio's interval: of the question's confidence, over all looks together where there were several.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// The answer.
    pub verdict: Verdict,
    /// Its confidence: the question's.
    pub confidence: f64,
    /// The question's threshold, in percent.
    pub threshold_percent: f64,
    /// Which way the quantity is good.
    pub better: Better,
    /// The smallest difference that so many samples with such a spread find in four runs of five, in percent (as J. Cohen,
    /// Statistical Power Analysis, 2nd edition (1988), takes it); infinite where they can find none.
    pub smallest_seen_percent: f64,
    /// Pairs that were judged.
    pub pairs: usize,
    /// What they are pairs of.
    pub of: Pairs,
    /// Samples that are no finite number, with their partners: not judged.
    pub left_out: usize,
}

impl Judgement {
    /// Lower end of the change's interval in percent.
    pub fn low_percent(&self) -> f64 {
        100.0 * (self.low - 1.0)
    }

    /// Upper end of the change's interval in percent.
    pub fn high_percent(&self) -> f64 {
        100.0 * (self.high - 1.0)
    }

    /// How much worse the new is, in percent: the likely value, the least and the most. Better is below 0.
    pub fn worse_percent(&self) -> (f64, f64, f64) {
        let (low, high) = (self.low_percent(), self.high_percent());
        match self.better {
            Better::Higher => (-self.change_percent, -high, -low),
            Better::Lower => (self.change_percent, low, high),
        }
    }

    /// The interval says something.
    pub fn has_interval(&self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }

    /// `95 %`.
    fn confidence_text(&self) -> String {
        format!("{} %", trimmed(100.0 * self.confidence, 4))
    }

    /// What so many pairs could have seen.
    fn reach(&self) -> String {
        let pairs = match (self.pairs, self.of) {
            (1, Pairs::Samples) => "1 pair".to_owned(),
            (count, Pairs::Samples) => format!("{count} pairs"),
            (1, Pairs::Runs) => "1 pair of runs".to_owned(),
            (count, Pairs::Runs) => format!("{count} pairs of runs"),
        };
        if self.smallest_seen_percent.is_finite() {
            return format!(
                "{pairs} could have seen {:.2} %",
                self.smallest_seen_percent
            );
        }
        let are = if self.pairs == 1 { "is" } else { "are" };
        let sure = self.confidence_text();
        let fewest = fewest_pairs(1.0 - self.confidence);
        match self.of {
            Pairs::Samples => format!("{pairs} {are} too few to be {sure} sure of anything"),
            Pairs::Runs => format!(
                "{pairs} {are} too few to be {sure} sure of anything: {fewest} are needed, taken in turns"
            ),
        }
    }
}

/// `Slower: -4.47 % (99.5 % sure: -5.01 to -3.92 %); 40 pairs could have seen 0.61 %`.
impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verdict {
            Verdict::Faster => f.write_str("Faster")?,
            Verdict::Slower => f.write_str("Slower")?,
            Verdict::NoDifference => {
                let limit = trimmed(self.threshold_percent, 4);
                write!(f, "No difference larger than {limit} %")?;
            }
            Verdict::NotEnough => f.write_str("Not enough evidence")?,
        }
        if self.ratio.is_finite() {
            write!(f, ": {:+.2} %", self.change_percent)?;
        } else if self.pairs > 0 {
            write!(f, ": from 0, which has no percent")?;
        }
        if self.has_interval() && self.smallest_seen_percent.is_finite() {
            let (low, high) = (self.low_percent(), self.high_percent());
            let sure = self.confidence_text();
            write!(f, " ({sure} sure: {low:+.2} to {high:+.2} %)")?;
        }
        write!(f, "; {}", self.reach())?;
        match self.left_out {
            0 => Ok(()),
            1 => write!(f, "; 1 sample is no number and was left out"),
            count => write!(f, "; {count} samples are no numbers and were left out"),
        }
    }
}

/// With so many decimals at the most, and no zeros at the end.
pub(crate) fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
