//! Detects how many samples at the start of a run belong to its warm-up.
//!
//! It looks for a change point in the first half of the run: the cut where the mean before differs most from
//! the mean after, in standard errors (from the spread of the second half). The difference must exceed what
//! noise produces at the worst cut (D. Hawkins, “Testing a Sequence of Observations for a Shift in Location”,
//! Journal of the American Statistical Association 72 (1977)). A single outlier is not a warm-up: samples are
//! first clamped to a distance from the quartiles of the second half. Several deviating samples within that
//! distance still count.

use super::outliers::quartiles;
use super::stdev;

/// With fewer samples, a trend cannot be detected.
const FEWEST: usize = 16;
/// Distance from the nearer quartile beyond which samples are clamped, in interquartile ranges.
const REACH: f64 = 8.0;
/// Threshold for the difference of the two means, in standard errors. Noise alone rarely reaches it, even at
/// the worst cut.
const CLEAR: f64 = 4.5;

/// The number of samples at the start that are warm-up; 0 if none are, or if there are fewer than 16 samples.
pub fn warm_up(samples: &[f64]) -> usize {
    let count = samples.len();
    if count < FEWEST || !samples.iter().all(|sample| sample.is_finite()) {
        return 0;
    }
    let samples = brought_in(samples);
    let spread = stdev(&samples[count / 2..]);
    let all: f64 = samples.iter().sum();
    let mut before = 0.0;
    let mut best = (0, CLEAR);
    for (sample, cut) in samples[..count / 2].iter().zip(1usize..) {
        before += sample;
        let (head, rest) = (cut as f64, (count - cut) as f64);
        let error = (1.0 / head + 1.0 / rest).sqrt() * spread;
        let difference = (before / head - (all - before) / rest).abs();
        let clearness = match difference <= f64::EPSILON * all.abs() {
            true => 0.0,
            false => difference / error,
        };
        if clearness > best.1 {
            best = (cut, clearness);
        }
    }
    best.0
}

/// The samples, clamped to [`REACH`]. If most samples are equal, there is no spread to clamp by, and they are
/// unchanged.
fn brought_in(samples: &[f64]) -> Vec<f64> {
    let (low, high) = quartiles(&samples[samples.len() / 2..]);
    let reach = REACH * (high - low);
    if reach == 0.0 {
        return samples.to_vec();
    }
    let inside = |sample: &f64| sample.clamp(low - reach, high + reach);
    samples.iter().map(inside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::Noise;

    #[test]
    fn a_cold_start_is_found() {
        let mut noise = Noise::new(11);
        for cold in [1, 3, 6] {
            let samples: Vec<f64> = (0..40)
                .map(|round| noise.normal(if round < cold { 80.0 } else { 100.0 }, 1.2))
                .collect();
            assert_eq!(warm_up(&samples), cold);
        }
        // An outlier elsewhere neither hides the warm-up nor counts as one.
        for wild in [8, 15, 30] {
            let mut samples: Vec<f64> = (0..40).map(|_| noise.normal(100.0, 1.2)).collect();
            samples[wild] = 40.0;
            assert_eq!(warm_up(&samples), 0, "{wild}");
            samples[..3].fill(80.0);
            assert_eq!(warm_up(&samples), 3, "{wild}");
        }
        // A warm-up whose effect halves with each sample.
        let fading = |round: i32| 100.0 - 40.0 * 0.5f64.powi(round);
        let samples: Vec<f64> = (0..40)
            .map(|round| noise.normal(fading(round), 1.2))
            .collect();
        assert!((2..8).contains(&warm_up(&samples)), "{}", warm_up(&samples));
    }

    #[test]
    fn noise_is_no_warm_up() {
        let mut noise = Noise::new(12);
        let runs = 500;
        let found = (0..runs)
            .filter(|run| {
                let count = if run % 2 == 0 { 16 } else { 40 };
                let samples: Vec<f64> = (0..count).map(|_| noise.normal(100.0, 1.2)).collect();
                warm_up(&samples) > 0
            })
            .count();
        assert!(found * 100 <= runs * 2, "{found} of {runs}");
        assert_eq!(warm_up(&[7.0; 40]), 0);
        assert_eq!(warm_up(&[f64::NAN; 40]), 0);
        assert_eq!(warm_up(&[9.0, 1.0, 1.0]), 0);
    }
}
