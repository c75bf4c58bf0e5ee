//! [`judge`]: whether two sets of samples differ, by how much, and how sure that is.
//!
//! Ratios are looked at: of samples above 0 the differences of their logarithms. What is said of them rests on Wilcoxon's
//! signed ranks (pairs), or Mann and Whitney's rank sum (separate sets), turned around into an interval for the shift, as
//! [`ranks`](super::ranks) and [`shift`](super::shift) have it. So where nothing differs, and a sample might as well have
//! been its partner, a false alarm is no more likely than was asked for, whatever the noise: skewed, heavy-tailed, with
//! outliers, drifting over the pairs, of few pairs or many. Too few pairs answer nothing: five of five say as little as
//! five throws of a coin, however near together they lie.

use super::distribution::{normal_quantile, student_quantile};
use super::ranks::{rank_sum_cut, signed_rank_cut};
use super::shift::{self, Shift};
use super::verdict::{Judgement, Question, Verdict};
use super::{mean, stdev};
use crate::record::Better;

/// How often the smallest difference that could have been seen would have been.
const POWER: f64 = 0.8;
/// Of separate sets neither may be smaller: two samples that lie below all of many others are unlikely to do so by chance, but
/// all that they tell is what two moments were like.
const FEWEST_APART: usize = 5;

/// Judges `new` against `base`, of which sample i of one was taken beside sample i of the other. Sets of different lengths
/// are no pairs, and are judged as [`judge_separate`] does.
///
/// Samples that are no finite number are left out, with their partners, and counted.
pub fn judge(base: &[f64], new: &[f64], question: &Question) -> Judgement {
    if base.len() == new.len() {
        judge_pairs(base, new, question, question.alpha())
    } else {
        judge_separate(base, new, question)
    }
}

/// Judges two sets that were taken apart from each other, such as two runs on two days. What else was different between
/// them is in the difference, and not in its interval.
pub fn judge_separate(base: &[f64], new: &[f64], question: &Question) -> Judgement {
    let finite =
        |set: &[f64]| -> Vec<f64> { set.iter().copied().filter(|s| s.is_finite()).collect() };
    let (all, base, new) = (base.len() + new.len(), finite(base), finite(new));
    let alpha = question.alpha();
    let scale = Scale::of(&base, &new);
    let (under, over) = (scale.applied(&base), scale.applied(&new));
    let enough = base.len().min(new.len()) >= FEWEST_APART;
    let cut = rank_sum_cut(base.len(), new.len(), alpha).filter(|_| enough);
    let shift = match (base.is_empty() || new.is_empty(), cut) {
        (true, _) => None,
        (false, Some(_)) => Some(shift::of_sets(&over, &under, cut)),
        (false, None) => Some(welch(&over, &under, alpha)),
    };
    let found = Found {
        shift,
        decides: cut.is_some(),
        alpha,
        paired: false,
        left_out: all - base.len() - new.len(),
        counts: (base.len(), new.len()),
    };
    found.judgement(&scale, question)
}

/// Judges pairs with another error probability than the question's: the share of one look of several.
pub(super) fn judge_pairs(base: &[f64], new: &[f64], question: &Question, alpha: f64) -> Judgement {
    let whole = base
        .iter()
        .zip(new)
        .filter(|(b, n)| b.is_finite() && n.is_finite());
    let (under, over): (Vec<f64>, Vec<f64>) = whole.unzip();
    let pairs = under.len();
    let scale = Scale::of(&under, &over);
    let differences: Vec<f64> = scale
        .applied(&over)
        .iter()
        .zip(scale.applied(&under))
        .map(|(over, under)| over - under)
        .collect();
    let cut = signed_rank_cut(pairs, alpha);
    let shift = match (pairs, cut) {
        (0, _) => None,
        (_, Some(_)) => Some(shift::of_pairs(&differences, cut)),
        (_, None) => Some(student(&differences, alpha)),
    };
    let found = Found {
        shift,
        decides: cut.is_some(),
        alpha,
        paired: true,
        left_out: base.len() - pairs,
        counts: (pairs, pairs),
    };
    found.judgement(&scale, question)
}

/// What too few pairs say if their noise is normal: to be shown, not to decide by.
fn student(differences: &[f64], alpha: f64) -> Shift {
    let count = differences.len();
    let reach = match count {
        1 => f64::INFINITY,
        _ => {
            let error = stdev(differences) / (count as f64).sqrt();
            student_quantile(1.0 - alpha / 2.0, count - 1) * error
        }
    };
    around(mean(differences), reach)
}

/// The same of two sets, with as many degrees of freedom as the smaller has, which is safe. (B. Welch, Biometrika 34 (1947).)
fn welch(over: &[f64], under: &[f64], alpha: f64) -> Shift {
    let fewer = over.len().min(under.len());
    let part = |set: &[f64]| stdev(set).powi(2) / set.len() as f64;
    let reach = match fewer {
        1 => f64::INFINITY,
        _ => student_quantile(1.0 - alpha / 2.0, fewer - 1) * (part(over) + part(under)).sqrt(),
    };
    around(mean(over) - mean(under), reach)
}

fn around(value: f64, reach: f64) -> Shift {
    Shift {
        value,
        low: value - reach,
        high: value + reach,
    }
}

/// What differences are taken of.
enum Scale {
    /// Logarithms: all samples are above 0.
    Logarithm,
    /// The samples themselves, in parts of this much: the mean size of `base`.
    Linear(f64),
}

impl Scale {
    fn of(base: &[f64], new: &[f64]) -> Scale {
        if base.iter().chain(new).all(|sample| *sample > 0.0) {
            return Scale::Logarithm;
        }
        let sizes: Vec<f64> = base.iter().map(|sample| sample.abs()).collect();
        Scale::Linear(if sizes.is_empty() { 0.0 } else { mean(&sizes) })
    }

    fn applied(&self, samples: &[f64]) -> Vec<f64> {
        match self {
            Scale::Logarithm => samples.iter().map(|sample| sample.ln()).collect(),
            Scale::Linear(_) => samples.to_vec(),
        }
    }

    /// The ratio that a shift is.
    fn ratio(&self, shift: f64) -> f64 {
        match self {
            Scale::Logarithm => shift.exp(),
            Scale::Linear(_) if shift == 0.0 => 1.0,
            // From 0 on, any step is infinite.
            Scale::Linear(size) => 1.0 + shift / size,
        }
    }
}

/// What was found, on the scale.
struct Found {
    shift: Option<Shift>,
    /// There are enough samples to decide anything.
    decides: bool,
    alpha: f64,
    paired: bool,
    left_out: usize,
    counts: (usize, usize),
}

impl Found {
    fn judgement(&self, scale: &Scale, question: &Question) -> Judgement {
        let unknown = around(f64::NAN, f64::INFINITY);
        let shift = self.shift.unwrap_or(Shift {
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
            ..unknown
        });
        let ratio = scale.ratio(shift.value);
        let mut judgement = Judgement {
            ratio,
            change_percent: 100.0 * (ratio - 1.0),
            low: scale.ratio(shift.low),
            high: scale.ratio(shift.high),
            verdict: Verdict::NotEnough,
            confidence: 1.0 - question.alpha(),
            threshold_percent: question.threshold_percent,
            better: question.better,
            smallest_seen_percent: self.smallest_seen(scale, &shift),
            pairs: self.counts.0.min(self.counts.1),
            paired: self.paired,
            base_samples: self.counts.0,
            new_samples: self.counts.1,
            left_out: self.left_out,
        };
        judgement.verdict = self.verdict(&shift, &judgement);
        judgement
    }

    /// An interval reaches as far to either side as the quantile of its confidence, in standard errors; a difference is
    /// found with the wanted power when it is larger by that power's quantile.
    fn smallest_seen(&self, scale: &Scale, shift: &Shift) -> f64 {
        if !self.decides {
            return f64::INFINITY;
        }
        let reach = (shift.high - shift.low) / 2.0;
        let wanted = 1.0 + normal_quantile(POWER) / normal_quantile(1.0 - self.alpha / 2.0);
        100.0 * (scale.ratio(reach * wanted) - 1.0)
    }

    fn verdict(&self, shift: &Shift, judgement: &Judgement) -> Verdict {
        let threshold = judgement.threshold_percent;
        if !self.decides {
            Verdict::NotEnough
        } else if judgement.low_percent() >= -threshold
            && judgement.high_percent() <= threshold
            && judgement.smallest_seen_percent <= threshold
        {
            Verdict::NoDifference
        } else if shift.low <= 0.0 && shift.high >= 0.0 {
            Verdict::NotEnough
        } else if (shift.low > 0.0) == (judgement.better == Better::Higher) {
            Verdict::Faster
        } else {
            Verdict::Slower
        }
    }
}
