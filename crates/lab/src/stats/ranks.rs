//! The distribution of the rank statistic under the null hypothesis. It does not depend on the distribution
//! of the samples.
//!
//! Wilcoxon's signed ranks: if n differences are as likely to be positive as negative, each of the 2ⁿ sign
//! patterns is equally likely. (F. Wilcoxon, Biometrics Bulletin 1 (1945); M. Hollander, D. Wolfe, E.
//! Chicken, Nonparametric Statistical Methods, 3rd edition, 3.1 to 3.3.)
//!
//! Small sizes are counted exactly. For larger ones, the normal approximation with continuity correction errs
//! only on the safe side, because both tails are lighter than normal. Ties make the true probability smaller
//! than the computed one.

use super::distribution::normal_quantile;

/// Maximum number of differences for which the distribution is counted exactly.
const EXACT_PAIRS: usize = 64;
/// Bound on the floating-point error of the summed probabilities.
const ROUNDING: f64 = 1e-9;

/// The rank, from 1 and from either end, at which the interval with two-sided error probability `alpha`
/// starts among the ordered pairwise means. `None` if there are too few pairs for such an interval.
pub(super) fn signed_rank_cut(pairs: usize, alpha: f64) -> Option<usize> {
    if pairs == 0 {
        return None;
    }
    let count = pairs as f64;
    let sums = pairs * (pairs + 1) / 2;
    if pairs > EXACT_PAIRS {
        let deviation = (count * (count + 1.0) * (2.0 * count + 1.0) / 24.0).sqrt();
        return approximate_cut(sums as f64 / 2.0, deviation, alpha);
    }
    let mut probability = vec![0.0; sums + 1];
    probability[0] = 1.0;
    for rank in 1..=pairs {
        for sum in (0..=sums).rev() {
            let with = if sum >= rank {
                probability[sum - rank]
            } else {
                0.0
            };
            probability[sum] = (probability[sum] + with) / 2.0;
        }
    }
    cut(&probability, alpha)
}

/// The number of values of the statistic, from 0, whose total probability is at most `alpha` / 2. The
/// interval starts at that rank.
fn cut(probability: &[f64], alpha: f64) -> Option<usize> {
    let mut below = 0.0;
    let inside = probability.iter().position(|of| {
        below += of;
        2.0 * below > alpha * (1.0 + ROUNDING)
    });
    inside.filter(|inside| *inside > 0)
}

fn approximate_cut(mean: f64, deviation: f64, alpha: f64) -> Option<usize> {
    let last = mean - 0.5 - normal_quantile(1.0 - alpha / 2.0) * deviation;
    (last >= 0.0).then(|| last as usize + 1)
}

/// The fewest pairs that can decide anything at error probability `alpha`: those for which equal signs of all
/// differences are that unlikely.
pub(super) fn fewest_pairs(alpha: f64) -> usize {
    (1 - (alpha * (1.0 + ROUNDING)).log2().floor() as i32).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_of_the_tables() {
        // Two-sided tables give the largest significant statistic; the cut is one more.
        for (pairs, alpha, want) in [
            (5, 0.05, None),
            (6, 0.05, Some(0)),
            (8, 0.01, Some(0)),
            (10, 0.05, Some(8)),
            (15, 0.01, Some(15)),
            (20, 0.05, Some(52)),
            (25, 0.01, Some(68)),
        ] {
            assert_eq!(
                signed_rank_cut(pairs, alpha),
                want.map(|t| t + 1),
                "{pairs} {alpha}"
            );
        }
        assert_eq!(signed_rank_cut(0, 0.05), None);
    }

    #[test]
    fn the_approximation_never_says_more_than_counting() {
        for alpha in [0.05, 0.005, 0.0005] {
            let pairs = EXACT_PAIRS as f64;
            let deviation = (pairs * (pairs + 1.0) * (2.0 * pairs + 1.0) / 24.0).sqrt();
            let near = approximate_cut(pairs * (pairs + 1.0) / 4.0, deviation, alpha);
            let exact = signed_rank_cut(EXACT_PAIRS, alpha);
            assert!(near <= exact, "{alpha}: {near:?} {exact:?}");
        }
    }

    #[test]
    fn the_fewest_pairs_have_a_cut_and_one_less_has_none() {
        for alpha in [0.5, 0.05, 0.03125, 0.01, 0.005, 0.0001] {
            let fewest = fewest_pairs(alpha);
            assert!(signed_rank_cut(fewest, alpha).is_some(), "{alpha}");
            assert!(signed_rank_cut(fewest - 1, alpha).is_none(), "{alpha}");
        }
    }
}
