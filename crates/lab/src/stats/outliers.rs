//! Outliers: samples far from the others. They are shown, never dropped.

use serde::Serialize;

use super::{quantile, sorted};

/// With fewer samples, quartiles have little meaning.
const FEWEST: usize = 8;
/// Distance from the nearer quartile, in interquartile ranges: J. Tukey, Exploratory Data Analysis (1977),
/// 2D.
const OUTSIDE: f64 = 1.5;
/// The same for what Tukey calls "far out".
const FAR_OUT: f64 = 3.0;

/// A sample outside Tukey's fences.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outlier {
    /// Its index, from 0.
    pub index: usize,
    /// Its value.
    pub value: f64,
    /// Whether it is "far out", not just outside.
    pub far: bool,
}

/// The samples outside Tukey's fences, in order; none if there are fewer than eight samples.
pub fn outliers(samples: &[f64]) -> Vec<Outlier> {
    let finite: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite()).collect();
    if finite.len() < FEWEST {
        return Vec::new();
    }
    let (low, high) = quartiles(&finite);
    let spread = high - low;
    let beyond = |value: f64, by: f64| value < low - by * spread || value > high + by * spread;
    let outside = |(index, value): (usize, &f64)| {
        beyond(*value, OUTSIDE).then(|| Outlier {
            index,
            value: *value,
            far: beyond(*value, FAR_OUT),
        })
    };
    samples.iter().enumerate().filter_map(outside).collect()
}

/// The lower and upper quartile, interpolated between neighbouring samples. `samples` must not be empty.
pub(super) fn quartiles(samples: &[f64]) -> (f64, f64) {
    let sorted = sorted(samples);
    (quantile(&sorted, 0.25), quantile(&sorted, 0.75))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_outliers_are_reported() {
        let mut samples: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i % 5)).collect();
        assert_eq!(outliers(&samples), []);
        samples[3] = 108.0;
        samples[7] = 50.0;
        let found = outliers(&samples);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].index, found[0].far), (3, false));
        assert_eq!(
            (found[1].index, found[1].value, found[1].far),
            (7, 50.0, true)
        );
    }

    #[test]
    fn few_or_strange_samples_are_no_trouble() {
        assert_eq!(outliers(&[1.0, 1.0, 1.0, 900.0]), []);
        assert_eq!(outliers(&[f64::NAN; 20]), []);
        let mut samples = vec![5.0; 12];
        samples[11] = f64::INFINITY;
        assert_eq!(outliers(&samples).len(), 1);
    }
}
