//! [`Ratio`]: how much more one variant does than another, on average.

use serde::{Deserialize, Serialize};

use super::{bootstrap, mean};

/// A ratio of two variants with its 95 % interval.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// Mean of the first over mean of the second.
    pub value: f64,
    /// Lower end of the 95 % interval; the value where there is one pair only, of which nothing more is known.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

impl Ratio {
    /// The ratio mean(`over`) / mean(`under`) of paired samples, with a bootstrap interval over the pairs.
    ///
    /// Of fewer than eight pairs the interval is the narrowest that can be believed; [`judge`](super::judge) decides.
    /// Returns `None` when there is no pair or the divisor's mean is 0.
    pub fn of(over: &[f64], under: &[f64]) -> Option<Ratio> {
        let pairs = over.len().min(under.len());
        let (over, under) = (&over[..pairs], &under[..pairs]);
        if pairs == 0 || mean(under) == 0.0 {
            return None;
        }
        let value = mean(over) / mean(under);
        let drawn = |picks: &[usize]| {
            let above: f64 = picks.iter().map(|pick| over[*pick]).sum();
            let below: f64 = picks.iter().map(|pick| under[*pick]).sum();
            if below == 0.0 {
                f64::INFINITY
            } else {
                above / below
            }
        };
        let (low, high) = bootstrap::interval(pairs, drawn).unwrap_or((value, value));
        Some(Ratio { value, low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_nothing_there_is_no_ratio() {
        assert!(Ratio::of(&[], &[]).is_none());
        assert!(Ratio::of(&[1.0], &[0.0]).is_none());
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
