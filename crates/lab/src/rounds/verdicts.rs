//! Compares each target with the first during the run, and decides whether the answers are certain.
//!
//! If the run may stop early, the questions are judged sequentially, so that repeated looks do not increase
//! the probability of a false answer. Otherwise they are judged once, at the end. The confidence holds for
//! all targets together: each question has its share of the error probability.

use crate::record::Better;
use crate::stats::{Judgement, Question, Sequential, Until, judge};

/// The question about each target except the first.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The quantity, such as `throughput`.
    pub quantity: String,
    /// Differences up to this size count as none, in percent.
    pub threshold_percent: f64,
    /// Confidence in all answers together: above 0.5, below 1.
    pub confidence: f64,
    /// The run stops as soon as this holds for all targets. If `None`, it stops after its rounds.
    pub until: Option<Until>,
}

impl Default for Asked {
    /// Throughput, judged at the end of the run.
    fn default() -> Asked {
        Asked {
            quantity: "throughput".into(),
            threshold_percent: Question::DEFAULT_THRESHOLD_PERCENT,
            confidence: Question::DEFAULT_CONFIDENCE,
            until: None,
        }
    }
}

/// The samples of the quantity so far.
pub(super) struct Verdicts<'a> {
    asked: &'a Asked,
    question: Question,
    max_rounds: usize,
    /// For each target, one value per round.
    values: Vec<Vec<f64>>,
    /// For each target except the first, if the run may stop early.
    sequential: Vec<Sequential>,
}

impl<'a> Verdicts<'a> {
    pub(super) fn new(asked: &'a Asked, targets: usize, max_rounds: usize) -> Verdicts<'a> {
        let others = targets.saturating_sub(1);
        Verdicts {
            asked,
            question: Question {
                better: Better::Higher,
                threshold_percent: asked.threshold_percent,
                confidence: 1.0 - (1.0 - asked.confidence) / others.max(1) as f64,
            },
            max_rounds,
            values: vec![Vec::new(); targets],
            sequential: Vec::new(),
        }
    }

    /// The quantity's name.
    pub(super) fn quantity(&self) -> &str {
        &self.asked.quantity
    }

    /// Adds a round: one value per target. Returns whether more rounds could still change an answer.
    pub(super) fn push(&mut self, better: Better, round: &[f64]) -> bool {
        let first = self.values.iter().all(Vec::is_empty);
        self.question.better = better;
        if let (true, Some(until)) = (first, self.asked.until) {
            let others = round.len().saturating_sub(1);
            let asked = Sequential::until(self.question, self.max_rounds, until);
            self.sequential = vec![asked; others];
        }
        for (values, value) in self.values.iter_mut().zip(round) {
            values.push(*value);
        }
        let others = round.iter().skip(1);
        for (sequential, value) in self.sequential.iter_mut().zip(others) {
            sequential.push(round[0], *value);
        }
        self.sequential.is_empty() || self.sequential.iter().any(Sequential::wants_more)
    }

    /// Whether the run may stop early and has all answers.
    pub(super) fn are_certain(&self) -> bool {
        let decided = |sequential: &Sequential| sequential.decided().is_some();
        !self.sequential.is_empty() && self.sequential.iter().all(decided)
    }

    /// The answers so far, one for each target except the first.
    pub(super) fn judgements(&self) -> Vec<Judgement> {
        if !self.sequential.is_empty() {
            return self.sequential.iter().map(Sequential::judgement).collect();
        }
        let mut values = self.values.iter();
        let Some(base) = values.next() else {
            return Vec::new();
        };
        values.map(|new| judge(base, new, &self.question)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Verdict;

    /// Pairs with a spread of about 1 %, of which the second is better by `percent`. Returns the number of
    /// pairs at the end of the run, and the answer.
    fn ended(asked: &Asked, percent: f64, rounds: usize) -> (usize, Verdict) {
        let mut random = fastrand::Rng::with_seed(6);
        let mut noise = || crate::stats::normal(&mut random);
        let mut verdicts = Verdicts::new(asked, 2, rounds);
        let mut taken = 0;
        while taken < rounds {
            taken += 1;
            let (base, new) = (100.0 + noise(), (100.0 + noise()) * (1.0 + percent / 100.0));
            if !verdicts.push(Better::Higher, &[base, new]) {
                break;
            }
        }
        let verdict = verdicts.judgements()[0].verdict;
        let certain = asked.until.is_some() && verdict != Verdict::NotEnough;
        assert_eq!(verdicts.are_certain(), certain);
        (taken, verdict)
    }

    #[test]
    fn a_large_difference_ends_it_early_and_only_if_that_was_asked() {
        let mut asked = Asked::default();
        assert_eq!(ended(&asked, 10.0, 60), (60, Verdict::Faster));
        asked.until = Some(Until::Certain);
        let (taken, verdict) = ended(&asked, -10.0, 60);
        assert!(
            taken < 60 && verdict == Verdict::Slower,
            "{taken} {verdict:?}"
        );
        // All rounds were run, without an answer.
        assert_eq!(ended(&asked, -10.0, 3), (3, Verdict::NotEnough));
    }

    #[test]
    fn targets_share_the_error_probability() {
        let asked = Asked::default();
        let verdicts = Verdicts::new(&asked, 5, 10);
        assert!((verdicts.question.confidence - 0.998_75).abs() < 1e-9);
        assert!(verdicts.judgements().len() == 4);
    }
}
