//! The order in which the targets of a round are measured. It is drawn anew for each round.
//!
//! In a fixed or rotating order, a target always follows the same predecessor. The effects of the predecessor
//! (caches, dirty data, a raised clock frequency) then become part of the target's figure, and no number of
//! rounds reveals that. If every order is equally likely, two equal targets can be swapped in any round. The
//! judge's bound on false alarms depends on this.

/// Draws the orders of a run. The same seed gives the same orders.
pub(crate) struct Order {
    random: fastrand::Rng,
    places: Vec<usize>,
}

impl Order {
    /// An order for this many targets.
    pub(crate) fn new(seed: u64, targets: usize) -> Order {
        Order {
            random: fastrand::Rng::with_seed(seed),
            places: (0..targets).collect(),
        }
    }

    /// The order of the next round: target numbers, from 0.
    pub(crate) fn next_round(&mut self) -> Vec<usize> {
        self.random.shuffle(&mut self.places);
        self.places.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_order_comes_as_often_as_any_other_and_the_same_again_from_one_seed() {
        let draw = |seed| {
            let mut order = Order::new(seed, 3);
            (0..6000).map(|_| order.next_round()).collect::<Vec<_>>()
        };
        let drawn = draw(5);
        assert_eq!(drawn, draw(5));
        assert_ne!(drawn, draw(6));
        let mut seen: BTreeMap<&[usize], usize> = BTreeMap::new();
        for order in &drawn {
            *seen.entry(order).or_default() += 1;
        }
        assert_eq!(seen.len(), 6);
        assert!(seen.values().all(|n| (900..1100).contains(n)), "{seen:?}");
    }
}
