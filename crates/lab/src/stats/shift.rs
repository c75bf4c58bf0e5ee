//! The shift between two sets of numbers: the Hodges-Lehmann estimate and its interval.
//!
//! The estimate is the median of all pairwise means of the differences. The ends of the interval are two of
//! those means, at ranks from both sides that [`ranks`](super::ranks) computes (J. Hodges, E. Lehmann, Annals
//! of Mathematical Statistics 34 (1963)). A few extreme samples move neither far. The interval is closed, so
//! its confidence also holds for tied values (G. Noether, Journal of the American Statistical Association 62
//! (1967)).
//!
//! There are about n²/2 such means, of which only a few are needed. They are found by bisecting the range of
//! values and counting the means below, in linear time per step, so many thousands of samples are possible.

use super::sorted;

/// The shift and its interval. The ends are infinite if they cannot be determined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shift {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Number of bisection steps: more than enough to reach adjacent floating-point numbers, except around 0,
/// where the remaining range is negligible.
const HALVINGS: usize = 200;

/// The sums of all pairs of these ascending numbers. Each number is also paired with itself.
struct Sums(Vec<f64>);

impl Sums {
    /// For each number, the index of the first partner whose sum exceeds `limit`.
    fn partners(&self, limit: f64) -> impl Iterator<Item = (usize, usize)> {
        let mut beyond = self.0.len();
        self.0.iter().enumerate().map(move |(place, number)| {
            while beyond > 0 && number + self.0[beyond - 1] > limit {
                beyond -= 1;
            }
            (place, beyond)
        })
    }

    /// The number of sums.
    fn len(&self) -> usize {
        self.0.len() * (self.0.len() + 1) / 2
    }

    /// The smallest and the largest sum.
    fn ends(&self) -> (f64, f64) {
        (2.0 * self.0[0], 2.0 * self.0[self.0.len() - 1])
    }

    /// The number of sums that are at most `limit`.
    fn up_to(&self, limit: f64) -> usize {
        let within = self.partners(limit);
        within
            .map(|(place, beyond)| beyond.saturating_sub(place))
            .sum()
    }

    /// The smallest sum above `limit`; infinite if there is none.
    fn above(&self, limit: f64) -> f64 {
        self.partners(limit)
            .filter_map(|(place, beyond)| Some(self.0[place] + self.0.get(beyond.max(place))?))
            .fold(f64::INFINITY, f64::min)
    }

    /// The sum at this rank in ascending order, from 1.
    fn at(&self, place: usize) -> f64 {
        let (smallest, largest) = self.ends();
        if self.up_to(smallest) >= place {
            return smallest;
        }
        let (mut low, mut high) = (smallest, largest);
        for _ in 0..HALVINGS {
            let middle = low / 2.0 + high / 2.0;
            if middle <= low || middle >= high {
                break;
            }
            if self.up_to(middle) >= place {
                high = middle;
            } else {
                low = middle;
            }
        }
        self.above(low)
    }
}

/// The shift of the differences between pairs (at least one, all finite): the median of the pairwise means,
/// and the ends that leave out `cut` of them on each side.
pub(super) fn of_pairs(differences: &[f64], cut: usize) -> Shift {
    let sums = Sums(sorted(differences));
    let count = sums.len();
    Shift {
        value: (sums.at(count.div_ceil(2)) + sums.at(count / 2 + 1)) / 4.0,
        low: sums.at(cut) / 2.0,
        high: sums.at(count + 1 - cut) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written_down(numbers: &mut [f64], cut: usize) -> Shift {
        numbers.sort_by(f64::total_cmp);
        let count = numbers.len();
        Shift {
            value: (numbers[(count - 1) / 2] + numbers[count / 2]) / 2.0,
            low: numbers[cut - 1],
            high: numbers[count - cut],
        }
    }

    #[test]
    fn it_finds_what_sorting_finds() {
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..300 {
            let count = random.usize(1..30);
            // Every second round has ties.
            let mut number = || match round % 2 {
                0 => random.f64() - 0.5,
                _ => f64::from(random.i32(-3..4)),
            };
            let numbers: Vec<f64> = (0..count).map(|_| number()).collect();
            let mut sums = Vec::new();
            for i in 0..count {
                sums.extend((i..count).map(|j| (numbers[i] + numbers[j]) / 2.0));
            }
            for cut in [1, sums.len().div_ceil(4)] {
                let want = written_down(&mut sums, cut);
                assert_eq!(of_pairs(&numbers, cut), want, "{numbers:?}");
            }
        }
    }
}
