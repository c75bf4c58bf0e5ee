//! Statistics of repeated measurements: what is said of one set of samples, and what of two of them.
//!
//! Variants of an experiment are measured interleaved, one sample of each per round, so sample `i` of one
//! variant belongs to sample `i` of every other. [`Ratio`] and [`judge`] keep that pairing: what disturbed a whole
//! round cancels out.
//!
//! Two families, for two purposes:
//! - [`Summary`] and [`Ratio`] describe: means, as the reports print them, with bootstrap intervals.
//! - [`judge`] and [`Sequential`] decide, and must not cry wolf: they go by ranks alone, so that their bound on false
//!   alarms is a theorem about any noise, not a hope about a normal one.

mod bootstrap;
mod distribution;
mod judge;
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

pub use judge::{judge, judge_separate};
pub use outliers::{Outlier, outliers};
pub use ratio::Ratio;
pub use sequential::Sequential;
pub use summary::Summary;
pub(crate) use verdict::trimmed;
pub use verdict::{Judgement, Question, Verdict};
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
