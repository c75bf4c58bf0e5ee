//! A question about two sets of samples, and its answer.

use std::fmt;

use serde::Serialize;

use super::ranks::fewest_pairs;
use crate::record::Better;

/// The question: is `new` better or worse than `base`?
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Question {
    /// Which direction is better.
    pub better: Better,
    /// Differences up to this size count as none, in percent; at least 0.
    pub threshold_percent: f64,
    /// The confidence of an answer: 0.995 is wrong in at most 5 of 1000 runs. Above 0.5 and below 1.
    pub confidence: f64,
}

impl Question {
    /// Half of the error that the project allows, which is one false alarm per hundred runs. So two in a
    /// hundred runs are rare.
    pub const DEFAULT_CONFIDENCE: f64 = 0.995;
    /// One percent: smaller differences rarely justify a change, and are hard to detect.
    pub const DEFAULT_THRESHOLD_PERCENT: f64 = 1.0;

    /// The question at the default confidence and threshold.
    pub fn new(better: Better) -> Question {
        Question {
            better,
            threshold_percent: Question::DEFAULT_THRESHOLD_PERCENT,
            confidence: Question::DEFAULT_CONFIDENCE,
        }
    }

    /// The error probability. An invalid confidence counts as the default.
    pub(super) fn alpha(&self) -> f64 {
        let alpha = 1.0 - self.confidence;
        match alpha > 1e-12 && alpha < 0.5 {
            true => alpha,
            false => 1.0 - Question::DEFAULT_CONFIDENCE,
        }
    }

    /// The fewest pairs that can give an answer at this confidence.
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
    /// The samples do not decide.
    NotEnough,
}

/// The verdict in words.
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

/// What the pairs consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairs {
    /// Samples from the same round of the same run.
    Samples,
    /// Runs, each reduced to one figure.
    Runs,
}

/// The answer and its basis. Its `Display` is a sentence.
///
/// In JSON, non-finite figures are `null`: an end of an interval that cannot be determined, or the ratio
/// without samples.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// The typical ratio new / base within a round, by the Hodges-Lehmann estimate, which is far less
    /// sensitive to extreme samples than a mean. NaN without samples.
    pub ratio: f64,
    /// The change in percent: −4.5 means 4.5 % less.
    pub change_percent: f64,
    /// Lower end of the ratio's interval, at the question's confidence. If there are several looks, the
    /// confidence holds for all of them jointly.
    pub low: f64,
    /// Upper end of the ratio's interval.
    pub high: f64,
    /// The answer.
    pub verdict: Verdict,
    /// The question's confidence.
    pub confidence: f64,
    /// The question's threshold, in percent.
    pub threshold_percent: f64,
    /// Which direction is better.
    pub better: Better,
    /// The smallest difference that this many samples with this spread detect in four of five runs, in
    /// percent (power as in J. Cohen, Statistical Power Analysis, 2nd edition (1988)); infinite if they can
    /// detect none.
    pub smallest_seen_percent: f64,
    /// The number of pairs judged.
    pub pairs: usize,
    /// What the pairs consist of.
    pub of: Pairs,
    /// Number of samples that were not judged, because they or their partners are not finite.
    pub left_out: usize,
}

impl Judgement {
    /// Lower end of the change's interval, in percent.
    pub fn low_percent(&self) -> f64 {
        100.0 * (self.low - 1.0)
    }

    /// Upper end of the change's interval, in percent.
    pub fn high_percent(&self) -> f64 {
        100.0 * (self.high - 1.0)
    }

    /// How much worse `new` is, in percent: the estimate, the minimum and the maximum. Negative means better.
    pub fn worse_percent(&self) -> (f64, f64, f64) {
        let (low, high) = (self.low_percent(), self.high_percent());
        match self.better {
            Better::Higher => (-self.change_percent, -high, -low),
            Better::Lower => (self.change_percent, low, high),
        }
    }

    /// Whether both ends of the interval are finite.
    pub fn has_interval(&self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }

    /// The confidence, such as `95 %`.
    fn confidence_text(&self) -> String {
        format!("{} %", trimmed(100.0 * self.confidence, 4))
    }

    /// The number of pairs and the smallest difference they could have detected.
    fn reach(&self) -> String {
        let pairs = match (self.pairs, self.of) {
            (1, Pairs::Samples) => "1 pair".to_owned(),
            (count, Pairs::Samples) => format!("{count} pairs"),
            (1, Pairs::Runs) => "1 pair of runs".to_owned(),
            (count, Pairs::Runs) => format!("{count} pairs of runs"),
        };
        if self.smallest_seen_percent.is_finite() {
            return format!(
                "{pairs} could have detected {:.2} %",
                self.smallest_seen_percent
            );
        }
        let are = if self.pairs == 1 { "is" } else { "are" };
        let sure = self.confidence_text();
        let fewest = fewest_pairs(1.0 - self.confidence);
        match self.of {
            Pairs::Samples => format!("{pairs} {are} too few for a confidence of {sure}"),
            Pairs::Runs => format!(
                "{pairs} {are} too few for a confidence of {sure}: {fewest} are needed, taken in turns"
            ),
        }
    }
}

/// The judgement in a sentence, such as
/// `Slower: -4.47 % (99.5 % sure: -5.01 to -3.92 %); 40 pairs could have detected 0.61 %`.
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
            write!(f, ": the base is 0, so there is no percentage")?;
        }
        if self.has_interval() && self.smallest_seen_percent.is_finite() {
            let (low, high) = (self.low_percent(), self.high_percent());
            let sure = self.confidence_text();
            write!(f, " ({sure} sure: {low:+.2} to {high:+.2} %)")?;
        }
        write!(f, "; {}", self.reach())?;
        match self.left_out {
            0 => Ok(()),
            1 => write!(f, "; 1 sample is not a number and was left out"),
            count => write!(f, "; {count} samples are not numbers and were left out"),
        }
    }
}

/// Formats with at most `decimals` decimals and no trailing zeros.
pub(crate) fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
