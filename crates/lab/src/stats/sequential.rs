//! [`Sequential`]: judges pairs as they arrive, and stops when the answer is certain.
//!
//! Judging after every pair and stopping at the first difference finds a difference in most runs of equal
//! variants. So there are few looks, fixed before the first pair, and each has a share of the error
//! probability: after n of at most N pairs, n / N of it is spent (K. Lan, D. DeMets, Biometrika 70 (1983);
//! the spending function of K. Kim, D. DeMets, Biometrika 74 (1987), with ρ = 1). The shares add up to the
//! total, so the probability of a false answer at any look stays within it, however the looks depend on each
//! other. In the same way, the intervals hold jointly, and may be read at any look (C. Jennison, B. Turnbull,
//! Journal of the Royal Statistical Society B 51 (1989)).

use super::judge::judge_pairs;
use super::verdict::{Judgement, Question, Verdict};

/// The number of pairs grows by this factor between looks. With more looks, each would have a smaller share.
const GROWTH: f64 = 1.25;

/// The number of pairs at a look, and its error probability.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    pairs: usize,
    alpha: f64,
}

/// A question that is judged while samples arrive.
///
/// ```text
/// while sequential.wants_more() {
///     sequential.push(measure(base)?, measure(new)?);
/// }
/// println!("{}", sequential.judgement());
/// ```
#[derive(Clone, Debug)]
pub struct Sequential {
    question: Question,
    max_pairs: usize,
    until: Until,
    looks: Vec<Look>,
    base: Vec<f64>,
    new: Vec<f64>,
    decided: Option<Judgement>,
}

/// What ends the run before all pairs are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// A verdict.
    Certain,
    /// It is certain on which side of this loss the result lies.
    Beside {
        /// The loss in percent, at least 0: 3 means 0.97 times the throughput, or 1.03 times the time.
        loss_percent: f64,
    },
    /// The interval extends no further from the estimate than this share of the change.
    Known {
        /// The share, above 0.
        share: f64,
    },
}

impl Until {
    fn ends_with(self, judgement: &Judgement) -> bool {
        match self {
            Until::Certain => judgement.verdict != Verdict::NotEnough,
            Until::Beside { loss_percent } => {
                let (_, low, high) = judgement.worse_percent();
                judgement.has_interval() && (low > loss_percent || high <= loss_percent)
            }
            Until::Known { share } => {
                let reach = (judgement.high - judgement.low) / 2.0;
                judgement.has_interval() && reach <= share * (judgement.ratio - 1.0).abs()
            }
        }
    }
}

impl Sequential {
    /// A question about at most `max_pairs` pairs, until there is a verdict. With fewer than
    /// [`Question::fewest_pairs`], the only possible verdict is [`Verdict::NotEnough`].
    pub fn new(question: Question, max_pairs: usize) -> Sequential {
        Sequential::until(question, max_pairs, Until::Certain)
    }

    /// A question that ends when `until` holds. The intervals hold jointly for all looks, so the last one is
    /// valid.
    pub fn until(question: Question, max_pairs: usize, until: Until) -> Sequential {
        Sequential {
            question,
            max_pairs,
            until,
            looks: looks(question.alpha(), max_pairs),
            base: Vec::new(),
            new: Vec::new(),
            decided: None,
        }
    }

    /// Adds a pair of samples taken close to each other. Pairs after the end are ignored.
    pub fn push(&mut self, base: f64, new: f64) {
        if !self.wants_more() {
            return;
        }
        self.base.push(base);
        self.new.push(new);
        let look = self.looks.iter().find(|look| look.pairs == self.base.len());
        if let Some(look) = look {
            let judgement = judge_pairs(&self.base, &self.new, &self.question, look.alpha);
            if self.until.ends_with(&judgement) {
                self.decided = Some(judgement);
            }
        }
    }

    /// Whether more pairs are needed and allowed.
    pub fn wants_more(&self) -> bool {
        self.decided.is_none() && self.base.len() < self.max_pairs
    }

    /// The answer, once it is certain.
    pub fn decided(&self) -> Option<Verdict> {
        self.decided.as_ref().map(|judgement| judgement.verdict)
    }

    /// The number of pairs so far.
    pub fn pairs(&self) -> usize {
        self.base.len()
    }

    /// The maximum number of pairs.
    pub fn max_pairs(&self) -> usize {
        self.max_pairs
    }

    /// The current state. Until the answer is certain, the verdict is [`Verdict::NotEnough`], and the
    /// interval over all pairs so far has the error probability of the next look.
    pub fn judgement(&self) -> Judgement {
        if let Some(judgement) = &self.decided {
            return judgement.clone();
        }
        let next_look = self.looks.iter().find(|look| look.pairs >= self.base.len());
        let alpha = next_look.map_or(self.question.alpha(), |look| look.alpha);
        Judgement {
            verdict: Verdict::NotEnough,
            ..judge_pairs(&self.base, &self.new, &self.question, alpha)
        }
    }
}

/// Judges the pairs of a run of at most `max_pairs` pairs that could have stopped at any look, because of its
/// results or for another reason. The last look reached is used, and later pairs are ignored. The intervals
/// of all looks hold jointly, so the reason for stopping does not matter.
pub fn judge_at_looks(
    base: &[f64],
    new: &[f64],
    question: &Question,
    max_pairs: usize,
) -> Judgement {
    let pairs = base.len().min(new.len());
    let looks = looks(question.alpha(), max_pairs.max(pairs));
    match looks.iter().rfind(|look| look.pairs <= pairs) {
        Some(look) => judge_pairs(
            &base[..look.pairs],
            &new[..look.pairs],
            question,
            look.alpha,
        ),
        // Before the first look, there is an interval, but no verdict.
        None => Judgement {
            verdict: Verdict::NotEnough,
            smallest_seen_percent: f64::INFINITY,
            ..judge_pairs(
                base,
                new,
                question,
                looks.first().map_or(question.alpha(), |look| look.alpha),
            )
        },
    }
}

/// The looks for at most `max` pairs. The first look is at the number of pairs for which equal signs of all
/// differences are unlikely enough.
fn looks(alpha: f64, max: usize) -> Vec<Look> {
    let spent = |pairs: usize| alpha * pairs as f64 / max as f64;
    let reachable = |pairs: &usize| (1.0 - *pairs as f64).exp2() <= spent(*pairs);
    let mut next = (1..=max).find(reachable);
    let mut looks = Vec::new();
    let mut before = 0.0;
    while let Some(pairs) = next {
        looks.push(Look {
            pairs,
            alpha: spent(pairs) - before,
        });
        before = spent(pairs);
        // If less than half a step would remain after this step, continue to the end.
        let step = |pairs: usize| (pairs as f64 * GROWTH).ceil() as usize;
        next = (pairs < max).then(|| match step(pairs) {
            then if then + (step(then) - then) / 2 >= max => max,
            then => then,
        });
    }
    looks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_looks_spend_what_there_is_and_no_more() {
        for (alpha, max) in [
            (0.005, 40),
            (0.01, 8),
            (0.05, 1000),
            (0.005, 100_000),
            (0.01, 60),
        ] {
            let looks = looks(alpha, max);
            let spent: f64 = looks.iter().map(|look| look.alpha).sum();
            assert!((spent - alpha).abs() < 1e-12, "{alpha} {max}: {spent}");
            assert_eq!(looks.last().map(|look| look.pairs), Some(max));
            assert!(looks.windows(2).all(|two| two[0].pairs < two[1].pairs));
            // Every look can decide: equal signs of all differences have a probability within its share.
            let can = |look: &Look| (1.0 - look.pairs as f64).exp2() <= look.alpha * (1.0 + 1e-9);
            assert!(looks.iter().all(can), "{looks:?}");
        }
        assert_eq!(looks(0.005, 8), [], "too few ever to answer");
        assert_eq!(looks(0.005, 0), []);
    }

    #[test]
    fn it_stops_at_the_first_look_that_is_certain_and_takes_no_more() {
        let mut sequential = Sequential::new(Question::default(), 40);
        let mut pushed = 0;
        while sequential.wants_more() {
            sequential.push(100.0, 90.0);
            pushed += 1;
            if sequential.wants_more() {
                assert_eq!(sequential.judgement().verdict, Verdict::NotEnough);
            }
        }
        assert_eq!(sequential.decided(), Some(Verdict::Slower));
        assert!(pushed < 15, "{pushed}");
        sequential.push(1.0, 1000.0);
        assert_eq!(sequential.pairs(), pushed);
        assert!((sequential.judgement().change_percent + 10.0).abs() < 1e-9);
    }

    /// Pairs with a loss of 4.5 % and a spread of 1.2 %, as in report 5.
    fn size(random: &mut fastrand::Rng, max: usize) -> Sequential {
        let mut noise = || 1.0 + 0.012 * crate::stats::normal(random);
        let question = Question {
            confidence: 0.99,
            ..Question::default()
        };
        let mut sequential = Sequential::until(question, max, Until::Known { share: 0.2 });
        while sequential.wants_more() {
            sequential.push(100.0 * noise(), 95.5 * noise());
        }
        sequential
    }

    #[test]
    fn a_size_is_measured_until_it_is_known_and_no_longer() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut missed = 0;
        for _ in 0..400 {
            let known = size(&mut random, 200);
            let judgement = known.judgement();
            let reach = (judgement.high - judgement.low) / 2.0;
            assert!(known.pairs() < 200, "{judgement}");
            assert!(reach <= 0.2 * (1.0 - judgement.ratio), "{judgement}");
            missed += usize::from(!(judgement.low..=judgement.high).contains(&0.955));
        }
        assert!(missed <= 4, "{missed} intervals of 400 miss, at 99 %");
        let few = size(&mut random, 14);
        assert_eq!((few.pairs(), few.decided()), (14, None));
    }

    #[test]
    fn it_ends_where_nothing_can_be_known() {
        for (pairs, value) in [(5, 1.0), (40, f64::NAN)] {
            let mut sequential = Sequential::new(Question::default(), pairs);
            while sequential.wants_more() {
                sequential.push(2.0, value);
            }
            assert_eq!(sequential.pairs(), pairs);
            assert_eq!(sequential.decided(), None);
            assert_eq!(sequential.judgement().verdict, Verdict::NotEnough);
        }
        assert!(!Sequential::new(Question::default(), 0).wants_more());
        assert_eq!(Sequential::new(Question::default(), 0).judgement().pairs, 0);
    }
}
