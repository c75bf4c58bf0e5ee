//! Runs variants interleaved: one sample of each per round, in a new random order each time. So a slow minute
//! of the machine, and the effects of a variant on the next one, affect all of them alike.

use crate::outcome::Outcome;
use crate::rounds::Order;
use crate::{Result, Settings};

/// Quantities of one sample: name, unit, value.
pub(crate) type Sample = Vec<(&'static str, &'static str, f64)>;

/// A variant of the work; each call of `measure` takes one sample.
pub(crate) struct Variant<'a> {
    /// The name in tables.
    name: String,
    /// Does the work once and returns the measurements.
    measure: Box<dyn FnMut() -> Result<Sample> + 'a>,
}

impl<'a> Variant<'a> {
    /// A variant with this name.
    pub(crate) fn new(
        name: impl Into<String>,
        measure: impl FnMut() -> Result<Sample> + 'a,
    ) -> Variant<'a> {
        Variant {
            name: name.into(),
            measure: Box::new(measure),
        }
    }
}

/// Seed of the orders. It is constant, so that an experiment is reproducible.
const SEED: u64 = 1;

impl Outcome {
    /// Runs every variant once without recording (warm-up), then in as many rounds as the user requested, or
    /// else `own_rounds`, and records the samples.
    ///
    /// If [`Settings::progress`] ends the run, or a sample fails because of it, the samples before are kept,
    /// and the outcome is marked as interrupted.
    ///
    /// # Errors
    /// Errors of the measurement, and those of `progress` before the first sample.
    pub(crate) fn measure<'a>(
        &mut self,
        settings: &Settings<'_>,
        own_rounds: usize,
        variants: impl Into<Vec<Variant<'a>>>,
    ) -> Result<()> {
        let rounds = settings.rounds.unwrap_or(own_rounds);
        let mut variants = variants.into();
        let mut order = Order::new(SEED, variants.len());
        for round in 0..=rounds {
            for which in order.next_round() {
                let variant = &mut variants[which];
                let go_on = || (settings.progress)(round, rounds);
                let sample = match go_on().and_then(|()| (variant.measure)()) {
                    // What was interrupted ends with an error of any kind.
                    Err(_) if !self.is_empty() && go_on().is_err() => {
                        self.interrupted = true;
                        return Ok(());
                    }
                    sample => sample?,
                };
                // The first round is a warm-up.
                for one in sample.into_iter().filter(|_| round > 0) {
                    self.sample(&variant.name, one);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Error;

    /// The outcome of an interruption before sample number `at` (from 0), with two variants in a warm-up and
    /// 3 rounds.
    fn interrupted_at(at: usize) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let asked = Cell::new(0);
        let variant = |name: &str| Variant::new(name, || Ok(vec![("speed", "MB/s", 1.0)]));
        let settings = Settings {
            dir: ".".into(),
            rounds: None,
            scale_percent: 100,
            engine: throughline_device::EngineChoice::Auto,
            progress: &|_, _| match asked.replace(asked.get() + 1) < at {
                true => Ok(()),
                false => Err(Error::new("interrupted")),
            },
        };
        outcome.measure(&settings, 3, [variant("a"), variant("b")])?;
        Ok(outcome)
    }

    #[test]
    fn a_sample_that_fails_because_of_the_interruption_ends_the_run() {
        let interrupted = Cell::new(false);
        let settings = Settings {
            dir: ".".into(),
            rounds: Some(9),
            scale_percent: 100,
            engine: throughline_device::EngineChoice::Auto,
            progress: &|_, _| match interrupted.get() {
                false => Ok(()),
                true => Err(Error::new("interrupted")),
            },
        };
        let run = |ends_at: usize, is_interrupted: bool| {
            interrupted.set(false);
            let count = Cell::new(0);
            let variant = Variant::new("a", || match count.replace(count.get() + 1) == ends_at {
                true => {
                    interrupted.set(is_interrupted);
                    Err(Error::new("a child was killed"))
                }
                false => Ok(vec![("speed", "MB/s", 1.0)]),
            });
            let mut outcome = Outcome::default();
            let ended = outcome.measure(&settings, 3, [variant]);
            ended.map(|()| (outcome.interrupted, outcome.samples("a", "speed").len()))
        };
        // Sample 0 is the warm-up.
        assert_eq!(run(4, true).expect("samples"), (true, 3));
        assert!(run(1, true).is_err(), "nothing measured");
        assert!(run(4, false).is_err(), "no interruption");
    }

    #[test]
    fn samples_before_an_interruption_are_kept() {
        for nothing_yet in 0..3 {
            assert!(interrupted_at(nothing_yet).is_err(), "{nothing_yet}");
        }
        let some = interrupted_at(5).expect("one round and a sample");
        assert!(some.interrupted);
        let counts = ["a", "b"].map(|name| some.samples(name, "speed").len());
        assert!(counts == [2, 1] || counts == [1, 2], "{counts:?}");
        let whole = interrupted_at(8).expect("all rounds");
        assert!(!whole.interrupted && whole.samples("b", "speed").len() == 3);
    }
}
