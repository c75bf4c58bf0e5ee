//! [`Summary`]: one set of samples in the form of report 5.

use std::fmt;

use serde::Serialize;

use super::{mean, sorted, stdev};

/// Description of one variant's samples.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Number of samples.
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
            return Summary::default();
        }
        let (mean, stdev) = (mean(samples), stdev(samples));
        let sorted = sorted(samples);
        let cv_percent = if mean == 0.0 {
            0.0
        } else {
            100.0 * stdev / mean.abs()
        };
        Summary {
            count,
            mean,
            median: (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
            min: sorted[0],
            max: sorted[count - 1],
            stdev,
            cv_percent,
        }
    }
}

/// The line of report 5: `testcnt=40 average=135.677 range=[132.460,139.130] stdev=1.610 cv=1.19%`.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "testcnt={} average={:.3} range=[{:.3},{:.3}] stdev={:.3} cv={:.2}%",
            self.count, self.mean, self.min, self.max, self.stdev, self.cv_percent
        )
    }
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
        assert_eq!(
            summary.to_string(),
            "testcnt=8 average=5.000 range=[2.000,9.000] stdev=2.138 cv=42.76%"
        );
    }

    #[test]
    fn an_empty_summary_is_all_zero() {
        let summary = Summary::of(&[]);
        assert_eq!((summary.count, summary.mean), (0, 0.0));
        let one = Summary::of(&[3.0]);
        assert_eq!((one.mean, one.stdev), (3.0, 0.0));
    }
}
