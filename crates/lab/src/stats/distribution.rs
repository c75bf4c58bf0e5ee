//! The two distributions that intervals need.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// The value that a standard normal variable stays below with this probability.
pub(super) fn normal_quantile(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(probability)
}

/// The value that Student's t with `freedom` degrees of freedom stays below with this probability; infinite
/// for 0 degrees.
pub(super) fn student_quantile(probability: f64, freedom: usize) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom as f64) {
        Ok(student) => student.inverse_cdf(probability),
        Err(_) => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_the_tables() {
        for (probability, freedom, want) in [
            (0.975, 1, 12.7062),
            (0.995, 4, 4.6041),
            (0.975, 39, 2.0227),
            (0.9975, 9, 3.6897),
        ] {
            let found = student_quantile(probability, freedom);
            assert!(
                (found - want).abs() < 1e-3,
                "{probability} {freedom}: {found}"
            );
        }
        assert!((normal_quantile(0.9975) - 2.807).abs() < 1e-3);
        assert_eq!(student_quantile(0.975, 0), f64::INFINITY);
    }
}
