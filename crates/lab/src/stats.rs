//! Statistics of repeated measurements: a summary in the form of report 5, and ratios with their spread.
//!
//! Variants of an experiment are measured interleaved, one sample of each per round, so sample `i` of one
//! variant belongs to sample `i` of every other. Ratios keep that pairing: the bootstrap draws rounds, not
//! single samples, and what disturbed a whole round cancels out.

use serde::{Deserialize, Serialize};

/// Resamples drawn for an interval: enough for a stable second digit of its ends.
const BOOTSTRAP_DRAWS: usize = 2000;
/// Fixed, so that the same samples always print the same interval.
const BOOTSTRAP_SEED: u64 = 0x7468_726f_7567_686c;

/// What is said of one variant's samples.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// How many samples there are.
    pub count: usize,
    /// Arithmetic mean; 0 without samples.
    pub mean: f64,
    /// Middle sample, or the mean of the two in the middle.
    pub median: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// Sample standard deviation (n − 1); 0 for fewer than two samples.
    pub stdev: f64,
    /// Coefficient of variation in percent.
    pub cv_percent: f64,
}

impl Summary {
    /// Summarises `samples`.
    pub fn of(samples: &[f64]) -> Summary {
        let count = samples.len();
        if count == 0 {
            return Summary {
                count,
                mean: 0.0,
                median: 0.0,
                min: 0.0,
                max: 0.0,
                stdev: 0.0,
                cv_percent: 0.0,
            };
        }
        let mean = mean(samples);
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
        let squares: f64 = samples.iter().map(|s| (s - mean).powi(2)).sum();
        let stdev = if count > 1 {
            (squares / (count - 1) as f64).sqrt()
        } else {
            0.0
        };
        let cv_percent = if mean == 0.0 {
            0.0
        } else {
            100.0 * stdev / mean.abs()
        };
        Summary {
            count,
            mean,
            median,
            min: sorted[0],
            max: sorted[count - 1],
            stdev,
            cv_percent,
        }
    }
}

/// A ratio of two variants with its 95 % interval.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// Mean of the first over mean of the second.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

impl Ratio {
    /// The ratio mean(`over`) / mean(`under`) of paired samples, with a bootstrap interval over the pairs.
    ///
    /// Returns `None` when there is no pair or the divisor's mean is 0.
    pub fn of(over: &[f64], under: &[f64]) -> Option<Ratio> {
        let pairs = over.len().min(under.len());
        let (over, under) = (&over[..pairs], &under[..pairs]);
        if pairs == 0 || mean(under) == 0.0 {
            return None;
        }
        let mut random = fastrand::Rng::with_seed(BOOTSTRAP_SEED);
        let mut draws: Vec<f64> = (0..BOOTSTRAP_DRAWS)
            .map(|_| {
                let (mut above, mut below) = (0.0, 0.0);
                for _ in 0..pairs {
                    let pick = random.usize(..pairs);
                    above += over[pick];
                    below += under[pick];
                }
                if below == 0.0 {
                    f64::INFINITY
                } else {
                    above / below
                }
            })
            .collect();
        draws.sort_by(f64::total_cmp);
        let at = |share: f64| draws[((draws.len() - 1) as f64 * share).round() as usize];
        Some(Ratio {
            value: mean(over) / mean(under),
            low: at(0.025),
            high: at(0.975),
        })
    }
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_known_samples() {
        let summary = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((summary.count, summary.mean, summary.median), (8, 5.0, 4.5));
        assert!((summary.stdev - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!((summary.min, summary.max), (2.0, 9.0));
    }

    #[test]
    fn an_empty_summary_is_all_zero() {
        assert_eq!(Summary::of(&[]).mean, 0.0);
        assert!(Ratio::of(&[], &[]).is_none());
    }

    #[test]
    fn a_common_disturbance_cancels_out_of_a_ratio() {
        let under: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i % 7) * 20.0).collect();
        let over: Vec<f64> = under.iter().map(|u| u * 1.3).collect();
        let ratio = Ratio::of(&over, &under).expect("there are pairs");
        assert!((ratio.value - 1.3).abs() < 1e-9 && (ratio.high - ratio.low) < 1e-9);
    }

    #[test]
    fn the_interval_holds_the_value() {
        let mut random = fastrand::Rng::with_seed(1);
        let under: Vec<f64> = (0..30).map(|_| 90.0 + 20.0 * random.f64()).collect();
        let over: Vec<f64> = (0..30).map(|_| 90.0 + 20.0 * random.f64()).collect();
        let ratio = Ratio::of(&over, &under).expect("there are pairs");
        assert!(ratio.low < ratio.value && ratio.value < ratio.high && ratio.low < 1.0 + 0.05);
    }
}
