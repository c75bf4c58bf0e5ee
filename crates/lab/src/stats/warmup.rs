//! Which samples at the start of a run still belong to its warming up.
//!
//! The cut is where K. White's rule puts it (“An effective truncation heuristic for bias reduction in simulation output”,
//! Simulation 69 (1997), known as MSER): where the standard error of the mean of what is left would be smallest, and no later than
//! half of the run. That rule always cuts somewhere, and off noise too; so the cut counts only where those before it differ
//! from those behind it by more than noise does at its worst place.

use super::{mean, stdev};

/// Fewer have no course that could be seen.
const FEWEST: usize = 10;
/// Difference of the two means, in its standard errors, that the best of all cuts through mere noise hardly reaches.
const CLEAR: f64 = 4.5;

/// How many samples at the start belong to warming up; 0 where none do, or where nothing can be seen.
pub fn warm_up(samples: &[f64]) -> usize {
    let count = samples.len();
    if count < FEWEST || !samples.iter().all(|sample| sample.is_finite()) {
        return 0;
    }
    let error = |cut: usize| {
        let left = (count - cut) as f64;
        stdev(&samples[cut..]).powi(2) / left
    };
    let best = (0..=count / 2).min_by(|a, b| error(*a).total_cmp(&error(*b)));
    let cut = best.unwrap_or(0);
    if cut == 0 {
        return 0;
    }
    let (head, rest) = samples.split_at(cut);
    let error = stdev(rest) * (1.0 / head.len() as f64 + 1.0 / rest.len() as f64).sqrt();
    match (mean(head) - mean(rest)).abs() > CLEAR * error {
        true => cut,
        false => 0,
    }
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
        // One that fades, by half each time.
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
            .filter(|_| {
                let samples: Vec<f64> = (0..40).map(|_| noise.normal(100.0, 1.2)).collect();
                warm_up(&samples) > 0
            })
            .count();
        assert!(found * 100 <= runs * 2, "{found} of {runs}");
        assert_eq!(warm_up(&[7.0; 40]), 0);
        assert_eq!(warm_up(&[f64::NAN; 40]), 0);
        assert_eq!(warm_up(&[9.0, 1.0, 1.0]), 0);
    }
}
