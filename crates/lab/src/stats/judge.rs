//! [`judge`]: whether two sets of samples differ, by how much, and with what confidence.
//!
//! It compares ratios: for samples above 0, differences of logarithms. The verdict is based on Wilcoxon's
//! signed ranks, inverted into an interval for the shift; see [`ranks`](super::ranks) and
//! [`shift`](super::shift). So if nothing differs, and each sample could be swapped with its partner, the
//! rate of false alarms stays within the requested bound for any noise: skewed, heavy-tailed, with outliers,
//! drifting over the pairs, with few pairs or many. Too few pairs decide nothing: five out of five prove no
//! more than five coin tosses, however small the spread is.
//!
//! Unpaired sets are never judged. All samples of one run share its conditions (where its files and memory
//! lie, what else the machine did), so hundreds of them are a single sample of "a run". Several runs are
//! compared in pairs ([`compare`](crate::compare)).

use super::distribution::{normal_quantile, student_quantile};
use super::ranks::signed_rank_cut;
use super::shift::{self, Shift};
use super::verdict::{Judgement, Pairs, Question, Verdict};
use super::{mean, stdev};
use crate::record::Better;

/// The power for which the smallest detectable difference is reported.
const POWER: f64 = 0.8;

/// Judges `new` against `base`. Sample i of one was taken close to sample i of the other. Samples without a
/// partner are ignored.
///
/// Pairs with a non-finite sample are left out and counted.
pub fn judge(base: &[f64], new: &[f64], question: &Question) -> Judgement {
    judge_pairs(base, new, question, question.alpha())
}

/// Judges pairs with another error probability than the question's: that of one of several looks.
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
        (0, _) => Shift {
            value: f64::NAN,
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
        },
        (_, Some(cut)) => shift::of_pairs(&differences, cut),
        (_, None) => student(&differences, alpha),
    };
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
        smallest_seen_percent: f64::INFINITY,
        pairs,
        of: Pairs::Samples,
        left_out: base.len().max(new.len()) - pairs,
    };
    if cut.is_some() {
        judgement.smallest_seen_percent = smallest_seen(&scale, &shift, alpha);
        judgement.verdict = verdict(&shift, &judgement);
    }
    judgement
}

/// The interval for too few pairs, assuming normal noise. It is shown, but decides nothing.
fn student(differences: &[f64], alpha: f64) -> Shift {
    let count = differences.len();
    let reach = match count {
        1 => f64::INFINITY,
        _ => {
            let error = stdev(differences) / (count as f64).sqrt();
            student_quantile(1.0 - alpha / 2.0, count - 1) * error
        }
    };
    let value = mean(differences);
    Shift {
        value,
        low: value - reach,
        high: value + reach,
    }
}

/// The scale on which differences are taken.
enum Scale {
    /// Logarithms: all samples are above 0.
    Logarithm,
    /// The samples themselves, in units of this value: the mean absolute value of `base`.
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

    /// Converts a shift on this scale to a ratio.
    fn ratio(&self, shift: f64) -> f64 {
        match self {
            Scale::Logarithm => shift.exp(),
            Scale::Linear(_) if shift == 0.0 => 1.0,
            // Relative to 0, any change is infinite.
            Scale::Linear(size) => 1.0 + shift / size,
        }
    }
}

/// Half the width of the interval is the quantile of its confidence, in standard errors. A difference is
/// detected with the wanted power if it exceeds that by the quantile of the power.
fn smallest_seen(scale: &Scale, shift: &Shift, alpha: f64) -> f64 {
    let reach = (shift.high - shift.low) / 2.0;
    let wanted = 1.0 + normal_quantile(POWER) / normal_quantile(1.0 - alpha / 2.0);
    100.0 * (scale.ratio(reach * wanted) - 1.0)
}

/// The verdict, given enough pairs.
fn verdict(shift: &Shift, judgement: &Judgement) -> Verdict {
    let threshold = judgement.threshold_percent;
    if judgement.low_percent() >= -threshold
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
