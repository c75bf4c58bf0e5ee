//! [`Evidence`]: pairs of two commits, collected until it is certain on which side of a [`Level`] the second
//! one lies.

use crate::record::Better;
use crate::stats::{self, Sequential, Until};

/// A commit's figure relative to the good end's: 1 is equal.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Level {
    /// The estimate.
    pub value: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The confidence of this interval, that is, of the decision from which it results.
    pub confidence: f64,
}

impl Level {
    /// Whether both ends of the interval are finite.
    pub(super) fn has_interval(&self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }

    /// Whether it is certain that the commit is not at this level.
    pub(super) fn excludes(&self, level: f64) -> bool {
        level < self.low || level > self.high
    }
}

/// The question whether a commit is better or worse than a level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    /// The level, relative to the commit it is measured against.
    pub(super) asked: f64,
    /// Differences up to this size from the level count as none, in percent.
    pub(super) nearby_percent: f64,
    /// The probability of a wrong answer, over all looks together.
    pub(super) alpha: f64,
}

impl Question {
    pub(super) fn new(asked: f64, nearby_percent: f64, alpha: f64) -> Question {
        Question {
            asked,
            nearby_percent,
            alpha,
        }
    }

    /// The same question in terms of ratios.
    pub(super) fn in_ratios(&self, better: Better) -> stats::Question {
        stats::Question {
            better,
            threshold_percent: self.nearby_percent,
            confidence: 1.0 - self.alpha,
        }
    }
}

/// The size of a change is known well enough when its interval extends no further from the estimate than this
/// share of the change: 4.5 % as 3.6 to 5.4 %.
pub(super) const KNOWN: Until = Until::Known { share: 0.2 };

/// Pairs of two commits, and what they show so far.
pub(super) struct Evidence {
    /// The pairs, with the base scaled to the level in question.
    pub(super) pairs: Sequential,
    asked: f64,
}

impl Evidence {
    /// Evidence for a question, from at most `most` pairs, until `until` holds.
    pub(super) fn about(question: &Question, better: Better, most: u32, until: Until) -> Evidence {
        Evidence {
            pairs: Sequential::until(question.in_ratios(better), most as usize, until),
            asked: question.asked,
        }
    }

    /// Adds a pair.
    pub(super) fn push(&mut self, base: f64, new: f64) {
        self.pairs.push(base * self.asked, new);
    }

    /// The commit's level, relative to the one it is measured against.
    pub(super) fn level(&self) -> Level {
        let judgement = self.pairs.judgement();
        Level {
            value: judgement.ratio * self.asked,
            low: judgement.low * self.asked,
            high: judgement.high * self.asked,
            confidence: judgement.confidence,
        }
    }
}
