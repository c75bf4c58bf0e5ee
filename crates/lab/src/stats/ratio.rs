//! The [`Ratio`] of one variant to another.

use super::judge::judge;
use super::verdict::Question;
use crate::record::Ratio;

/// The ratio of paired samples, `over` to `under`.
///
/// The interval uses signed ranks. For fewer than six pairs there is none at 95 %, and it uses Student's t,
/// which assumes normal noise. Returns `None` if there is no pair or the divisor is 0.
pub(crate) fn ratio(over: &[f64], under: &[f64]) -> Option<Ratio> {
    let question = Question {
        confidence: 0.95,
        ..Question::default()
    };
    let found = judge(under, over, &question);
    let within = |end: f64| match found.pairs {
        1 => found.ratio,
        // JSON cannot represent infinity.
        _ => end.clamp(f64::MIN, f64::MAX),
    };
    found.ratio.is_finite().then(|| Ratio {
        value: found.ratio,
        low: within(found.low),
        high: within(found.high),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_nothing_there_is_no_ratio() {
        assert!(ratio(&[], &[]).is_none());
        assert!(ratio(&[1.0], &[0.0]).is_none());
        let one = ratio(&[3.0], &[2.0]).expect("a pair");
        assert_eq!((one.low, one.high), (one.value, one.value));
    }

    #[test]
    fn a_common_disturbance_cancels_out_of_a_ratio() {
        let under: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i % 7) * 20.0).collect();
        let over: Vec<f64> = under.iter().map(|u| u * 1.3).collect();
        let ratio = ratio(&over, &under).expect("there are pairs");
        assert!((ratio.value - 1.3).abs() < 1e-9 && (ratio.high - ratio.low) < 1e-9);
    }

    /// The interval has the promised coverage even with a handful of pairs, unlike a bootstrap.
    #[test]
    fn the_interval_contains_the_true_ratio_as_often_as_stated() {
        let mut noise = crate::stats::tests::Noise::new(31);
        for (pairs, runs) in [(3, 1000), (5, 1000), (8, 1000), (20, 400)] {
            let held = (0..runs)
                .filter(|_| {
                    let mut some = |level: f64| -> Vec<f64> {
                        (0..pairs).map(|_| noise.normal(level, 3.0)).collect()
                    };
                    let ratio = ratio(&some(130.0), &some(100.0)).expect("there are pairs");
                    (ratio.low..=ratio.high).contains(&1.3)
                })
                .count();
            assert!(held * 100 >= runs * 93, "{pairs}: {held} of {runs}");
        }
    }

    #[test]
    fn the_interval_holds_the_value() {
        let mut random = fastrand::Rng::with_seed(1);
        let under: Vec<f64> = (0..30).map(|_| 90.0 + 20.0 * random.f64()).collect();
        let over: Vec<f64> = (0..30).map(|_| 90.0 + 20.0 * random.f64()).collect();
        let ratio = ratio(&over, &under).expect("there are pairs");
        assert!(ratio.low < ratio.value && ratio.value < ratio.high && ratio.low < 1.0 + 0.05);
    }
}
