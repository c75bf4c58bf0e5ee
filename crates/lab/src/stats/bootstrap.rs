//! Intervals by resampling: draw as many samples as there are, with replacement, and see how the figure moves.
//!
//! The ends are the expanded percentiles of T. Hesterberg, “What Teachers Should Know About the Bootstrap”, The American
//! Statistician 69 (2015), 3.1: the plain percentiles of few samples are too near to each other by √((n−1)/n) and by the
//! difference between the normal distribution and Student's t; taken further out, they make up for both.

use super::distribution::{normal_below, student_quantile};
use super::{mean, sorted, stdev};

/// Resamples drawn for an interval: enough for a stable second digit of its ends.
const DRAWS: usize = 2000;
/// Fixed, so that the same samples always print the same interval.
const SEED: u64 = 0x7468_726f_7567_686c;
/// The confidence of the intervals of description.
const CONFIDENCE: f64 = 0.95;
/// Below so many samples resampling knows too few values (it cannot leave the range of what was seen), and Student's
/// interval is taken.
const FEW: usize = 8;

/// The 95 % interval of what `figure` says of samples; it is asked with the numbers of those drawn, which are below
/// `count`. `None` for fewer than two.
pub(super) fn interval(
    count: usize,
    mut figure: impl FnMut(&[usize]) -> f64,
) -> Option<(f64, f64)> {
    if count < 2 {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut picks = vec![0; count];
    let draws: Vec<f64> = (0..DRAWS)
        .map(|_| {
            picks.fill_with(|| random.usize(..count));
            figure(&picks)
        })
        .collect();
    let draws = sorted(&draws);
    let spread = (count as f64 / (count - 1) as f64).sqrt();
    let below = normal_below(-spread * student_quantile((1.0 + CONFIDENCE) / 2.0, count - 1));
    let at = |share: f64| draws[((DRAWS - 1) as f64 * share).round() as usize];
    Some((at(below), at(1.0 - below)))
}

/// The 95 % interval of the mean; `None` for fewer than two samples.
pub(super) fn mean_interval(samples: &[f64]) -> Option<(f64, f64)> {
    let count = samples.len();
    if (2..FEW).contains(&count) {
        let reach = student_quantile((1.0 + CONFIDENCE) / 2.0, count - 1) * stdev(samples)
            / (count as f64).sqrt();
        let mean = mean(samples);
        return Some((mean - reach, mean + reach));
    }
    interval(count, |picks| {
        picks.iter().map(|pick| samples[*pick]).sum::<f64>() / count as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_lies_inside_as_often_as_is_said() {
        let mut random = fastrand::Rng::with_seed(5);
        for (count, runs) in [(3, 400), (5, 400), (8, 200), (20, 200)] {
            let held = (0..runs)
                .filter(|_| {
                    // The sum of twelve uniform variables: normal enough, mean 6.
                    let samples: Vec<f64> = (0..count)
                        .map(|_| (0..12).map(|_| random.f64()).sum())
                        .collect();
                    let (low, high) = mean_interval(&samples).expect("two samples");
                    (low..=high).contains(&6.0)
                })
                .count();
            assert!(held * 100 >= runs * 91, "{count}: {held} of {runs}");
        }
        assert_eq!(mean_interval(&[1.0]), None);
    }
}
