//! [`Evidence`]: pairs of two commits, gathered until it is certain on which side of a [`Level`] the second one lies.

use crate::record::Better;
use crate::stats::{self, Judgement, Sequential, Until, Verdict};

/// A commit's figure as a share of the good end's: 1 is as good as that.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Level {
    /// The estimate.
    pub value: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How sure the interval is, by itself: as the decision that it comes from.
    pub confidence: f64,
}

impl Level {
    /// How far it is from 1, in percent; negative: below.
    pub fn change_percent(&self) -> f64 {
        (self.value - 1.0) * 100.0
    }

    /// The interval says something.
    pub(super) fn has_interval(&self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }

    /// Whether it is certain that it is not this one.
    pub(super) fn excludes(&self, level: f64) -> bool {
        level < self.low || level > self.high
    }
}

/// Is a commit better or worse than this level?
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    /// The level, as a share of what the commit is measured beside.
    pub(super) asked: f64,
    /// So close to it is neither, in percent.
    pub(super) nearby_percent: f64,
    /// The probability of a wrong answer, however often it is looked at.
    pub(super) alpha: f64,
}

impl Question {
    /// Asks on which side of `asked` it lies; so many percent beside it are neither.
    pub(super) fn new(asked: f64, nearby_percent: f64, alpha: f64) -> Question {
        Question {
            asked,
            nearby_percent,
            alpha,
        }
    }

    /// As the statistics ask it.
    fn in_ratios(&self, better: Better) -> stats::Question {
        stats::Question {
            better,
            threshold_percent: self.nearby_percent,
            confidence: 1.0 - self.alpha,
        }
    }

    /// The fewest pairs that can ever answer it.
    pub(super) fn fewest_pairs(&self, better: Better) -> usize {
        self.in_ratios(better).fewest_pairs()
    }
}

/// So near to its estimate, as a share of the change, the size of a change is known well: 4.5 % as 3.6 to 5.4 %.
const SIZE_SHARE: f64 = 0.2;

/// What a number of pairs says.
pub(super) struct Evidence {
    sequential: Sequential,
    /// The level that is asked about.
    asked: f64,
    pairs: usize,
}

impl Evidence {
    /// Asks a question of at most so many pairs.
    pub(super) fn about(question: &Question, better: Better, most: usize) -> Evidence {
        Evidence {
            sequential: Sequential::new(question.in_ratios(better), most),
            asked: question.asked,
            pairs: 0,
        }
    }

    /// Asks at most so many pairs how large a change is: they are enough once its interval, which is wrong with the
    /// probability `alpha`, reaches no further from the estimate than [`SIZE_SHARE`].
    pub(super) fn of_size(alpha: f64, better: Better, most: usize) -> Evidence {
        let question = Question::new(1.0, 0.0, alpha);
        Evidence {
            sequential: Sequential::until(
                question.in_ratios(better),
                most,
                Until::Known { share: SIZE_SHARE },
            ),
            asked: question.asked,
            pairs: 0,
        }
    }

    /// The most pairs that there will be.
    pub(super) fn most(&self) -> usize {
        self.sequential.max_pairs()
    }

    /// Neither is it answered, nor are all pairs there.
    pub(super) fn wants_more(&self) -> bool {
        self.sequential.wants_more()
    }

    /// Takes in a pair.
    pub(super) fn push(&mut self, base: f64, new: f64) {
        self.sequential.push(base * self.asked, new);
        self.pairs += 1;
    }

    /// How many there are.
    pub(super) fn pairs(&self) -> usize {
        self.pairs
    }

    /// The answer, once it is certain: [`Verdict::Slower`] is worse, [`Verdict::Faster`] better.
    pub(super) fn decided(&self) -> Option<Verdict> {
        self.sequential.decided()
    }

    /// What is known by now.
    pub(super) fn judgement(&self) -> Judgement {
        self.sequential.judgement()
    }

    /// Where the commit lies, as a share of what it is measured beside.
    pub(super) fn level(&self) -> Level {
        let judgement = self.judgement();
        Level {
            value: judgement.ratio * self.asked,
            low: judgement.low * self.asked,
            high: judgement.high * self.asked,
            confidence: judgement.confidence,
        }
    }
}
