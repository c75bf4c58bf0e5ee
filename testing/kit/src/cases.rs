//! Tests over cases that `proptest` generates. Every such test takes its settings from here, so that its
//! cases come from [`seed::of_run`].

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use crate::{seed, tier};

/// Settings for `proptest!`: so many cases (in the quick tier, a quarter), the same ones in each run with the
/// same seed.
///
/// ```ignore
/// proptest! {
///     #![proptest_config(throughline_testkit::cases::config(256))]
///     …
/// }
/// ```
pub fn config(cases: u32) -> ProptestConfig {
    seeded(0, cases)
}

fn seeded(of_test: u64, cases: u32) -> ProptestConfig {
    let cases = tier::pick(cases.div_ceil(4), cases, cases);
    ProptestConfig {
        cases,
        // The seed repeats a failure. A case to keep becomes a test of its own.
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed::of_run(of_test)),
        ..ProptestConfig::default()
    }
}

/// Calls `each` with `cases` values of a strategy: the same ones in every run with the same seeds, that of
/// the test and that of the run.
///
/// # Panics
/// If `each` does, with the smallest such value that was found.
#[track_caller]
pub fn check<S: Strategy>(of_test: u64, cases: u32, strategy: S, each: impl Fn(S::Value)) {
    let done = TestRunner::new(seeded(of_test, cases)).run(&strategy, |value| {
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
        assert_eq!(values(3).len(), tier::pick(5, 20, 20));
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
