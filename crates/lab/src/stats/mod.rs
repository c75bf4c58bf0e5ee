//! Statistics of repeated measurements: what is said of one set of samples, and what of two of them.
//!
//! Variants of an experiment are measured interleaved, one sample of each per round, so sample `i` of one
//! variant belongs to sample `i` of every other. [`Ratio`] and [`judge`] keep that pairing: what disturbed a whole
//! round cancels out.
//!
//! [`Summary`] describes one set of samples. Of two, all that is said goes by ranks: [`judge`] and [`Sequential`] decide, and
//! must not cry wolf, so their bound on false alarms is a theorem about any noise, not a hope about a normal one; and
//! [`Ratio`] is found in the same way, so that no table shows an interval which the verdict beside it does not go by.

mod distribution;
mod judge;
mod order;
mod outliers;
mod ranks;
mod ratio;
mod sequential;
mod shift;
mod summary;
#[cfg(test)]
mod tests;
mod verdict;
mod warmup;

pub use judge::judge;
pub(crate) use order::{Rounds, effects_of_order};
pub use outliers::{Outlier, outliers};
pub use ratio::Ratio;
pub use sequential::{Sequential, Until, judge_at_looks};
pub use summary::Summary;
pub(crate) use verdict::trimmed;
pub use verdict::{Judgement, Pairs, Question, Verdict};
pub use warmup::warm_up;

/// The arithmetic mean; NaN of nothing.
fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// Sample standard deviation (n − 1); 0 for fewer than two samples.
fn stdev(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let mean = mean(samples);
    let squares: f64 = samples.iter().map(|s| (s - mean).powi(2)).sum();
    (squares / (samples.len() - 1) as f64).sqrt()
}

/// A sorted copy.
fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}
