//! Whether the position in a round matters: does the target measured first differ from those measured later?
//!
//! The order of targets is drawn anew for each round, so an effect of the position is the same for all of
//! them and invalidates no verdict. It is reported because it is part of every figure: another order would
//! give other figures.

use std::collections::BTreeMap;

use super::judge::judge;
use super::verdict::{Judgement, Question, Verdict};
use super::{mean, sorted};

/// For each round of a run, the targets' numbers and values in the order they were measured.
pub(crate) type Rounds = Vec<Vec<(usize, f64)>>;

/// One sentence for each quantity where the first target in a round certainly differs from the later ones.
/// The confidence holds for all quantities together.
pub(crate) fn effects_of_order(quantities: &BTreeMap<&str, Rounds>) -> Vec<String> {
    let each = 1.0 - (1.0 - Question::DEFAULT_CONFIDENCE) / quantities.len().max(1) as f64;
    let effect = |(quantity, rounds): (&&str, &Rounds)| {
        let found = first_in_round(rounds, each)?;
        Some(format!(
            "the order has an effect: {quantity} of the first in a round differs by {:+.2} % from that of \
             the later ones ({:+.2} to {:+.2} %); the order is random, so the verdicts are still valid",
            found.change_percent,
            found.low_percent(),
            found.high_percent()
        ))
    };
    quantities.iter().filter_map(effect).collect()
}

/// Compares the first value of each round with the other values of that round.
///
/// Differences between the targets are removed first, by dividing each value by its target's median. Returns
/// `None` if no effect is certain, or if that cannot be determined: values that are not all above 0, or
/// rounds with a single target.
fn first_in_round(rounds: &[Vec<(usize, f64)>], confidence: f64) -> Option<Judgement> {
    let values = || rounds.iter().flatten();
    if !values().all(|(_, value)| value.is_finite() && *value > 0.0) {
        return None;
    }
    let targets = values().map(|(target, _)| target + 1).max()?;
    let typical: Vec<f64> = (0..targets)
        .map(|target| {
            let of_it: Vec<f64> = values()
                .filter(|(of, _)| *of == target)
                .map(|(_, value)| *value)
                .collect();
            sorted(&of_it).get(of_it.len() / 2).copied().unwrap_or(1.0)
        })
        .collect();
    let share = |(target, value): &(usize, f64)| value / typical[*target];
    let (later, first): (Vec<f64>, Vec<f64>) = rounds
        .iter()
        .filter_map(|round| {
            let (first, others) = round.split_first()?;
            let others: Vec<f64> = others.iter().map(share).collect();
            (!others.is_empty()).then(|| (mean(&others), share(first)))
        })
        .unzip();
    let question = Question {
        threshold_percent: 0.0,
        confidence,
        ..Question::default()
    };
    let found = judge(&later, &first, &question);
    matches!(found.verdict, Verdict::Faster | Verdict::Slower).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::Noise;

    /// Rounds of targets in random order. Target n takes 1 + n/2 times the time of target 0. The first in a
    /// round is slower by `percent`.
    fn rounds(
        noise: &mut Noise,
        random: &mut fastrand::Rng,
        targets: usize,
        percent: f64,
    ) -> Vec<Vec<(usize, f64)>> {
        let round = |_| {
            let mut order: Vec<usize> = (0..targets).collect();
            random.shuffle(&mut order);
            let measured = order.into_iter().enumerate().map(|(place, target)| {
                let first = if place == 0 {
                    1.0 - percent / 100.0
                } else {
                    1.0
                };
                (
                    target,
                    first * noise.normal(100.0, 2.0) * (1.0 + target as f64 / 2.0),
                )
            });
            measured.collect()
        };
        (0..40).map(round).collect()
    }

    #[test]
    fn an_effect_of_the_place_is_found_only_if_there_is_one() {
        let (mut noise, mut random) = (Noise::new(21), fastrand::Rng::with_seed(22));
        for targets in [2, 3, 5] {
            let mut count = |percent: f64| {
                let found = |_: &usize| {
                    let rounds = rounds(&mut noise, &mut random, targets, percent);
                    first_in_round(&rounds, 0.995)
                        .is_some_and(|found| found.verdict == Verdict::Slower)
                };
                (0..200).filter(found).count()
            };
            assert!(count(0.0) <= 2, "{targets}");
            assert!(count(4.0) >= 198, "{targets}");
        }
    }

    #[test]
    fn too_little_data_shows_no_effect_of_order() {
        for rounds in [
            vec![],
            vec![vec![]],
            vec![vec![(0, 1.0)]; 40],
            vec![vec![(0, 1.0), (1, -1.0)]; 40],
            vec![vec![(3, 1.0), (7, f64::NAN)]; 40],
        ] {
            assert!(first_in_round(&rounds, 0.995).is_none());
        }
    }
}
