//! Statistics of repeated measurements: descriptions of one set of samples, and comparisons of two.
//!
//! The variants of an experiment are measured interleaved, one sample each per round, so sample `i` of one
//! variant pairs with sample `i` of every other. A ratio and [`judge`] use these pairs, so a disturbance
//! that affects a whole round cancels out.
//!
//! [`Summary`] describes one set of samples. Two sets are always compared by ranks. [`judge`] and
//! [`Sequential`] decide, and must not raise false alarms: their bound is a theorem for any noise, and does
//! not assume normal noise. A ratio uses the same method, so that a table never shows an interval that
//! contradicts the verdict next to it.

mod distribution;
mod judge;
mod ranks;
mod ratio;
mod sequential;
mod shift;
mod summary;
#[cfg(test)]
mod tests;
mod verdict;

pub use judge::judge;
pub(crate) use ratio::ratio;
pub use sequential::{Sequential, Until, judge_at_looks};
pub use summary::Summary;
pub(crate) use verdict::trimmed;
pub use verdict::{Judgement, Pairs, Question, Verdict};

/// A standard normal variable, by the Box-Muller transform.
pub(crate) fn normal(random: &mut fastrand::Rng) -> f64 {
    let (radius, angle) = (1.0 - random.f64(), random.f64());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// The arithmetic mean; NaN without samples.
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

/// The quantile at `share` of sorted samples, interpolated between its two neighbours; 0 without samples.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let place = last as f64 * share;
    let (below, above) = (
        sorted[place.floor() as usize],
        sorted[place.ceil() as usize],
    );
    below + (above - below) * place.fract()
}

/// A sorted copy.
pub(crate) fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}
