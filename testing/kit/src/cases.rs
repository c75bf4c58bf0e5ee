//! Tests over cases that `proptest` generates.

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

/// Calls `each` with `cases` values of a strategy: the same ones in every run with this seed.
///
/// # Panics
/// If `each` does, with the smallest such value that was found.
#[track_caller]
pub fn check<S: Strategy>(seed: u64, cases: u32, strategy: S, each: impl Fn(S::Value)) {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    };
    let done = TestRunner::new(config).run(&strategy, |value| {
        each(value);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn values(seed: u64) -> Vec<u64> {
        let values = RefCell::new(Vec::new());
        check(seed, 20, any::<u64>(), |value| {
            values.borrow_mut().push(value);
        });
        values.into_inner()
    }

    #[test]
    fn a_seed_gives_the_same_cases_again() {
        assert_eq!(values(3).len(), 20);
        assert_eq!(values(3), values(3));
        assert_ne!(values(3), values(4));
    }

    #[test]
    fn a_failure_is_reported_with_the_smallest_case() {
        let failed = std::panic::catch_unwind(|| check(3, 100, 0..1000u32, |n| assert!(n < 17)));
        let message = failed.expect_err("a case fails");
        let message = message.downcast_ref::<String>().expect("a text");
        assert!(message.contains("minimal failing input: 17"), "{message}");
    }
}
