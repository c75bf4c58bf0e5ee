//! Runs variants interleaved: one sample of each per round, in a new random order each time. So a slow minute
//! of the machine, and the effects of a variant on the next one, affect all of them alike.

use std::collections::BTreeMap;

use crate::outcome::Outcome;
use crate::rounds::Order;
use crate::stats::{Rounds, effects_of_order};
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
    /// If [`Settings::progress`] ends the run after the first sample, the samples are kept, and the outcome
    /// is marked as interrupted.
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
        if let Some(watch) = settings.watch {
            // Register them in order, because the first sample may not be that of the first variant.
            for variant in &variants {
                watch.variants().variant(&variant.name);
            }
        }
        let first = self.is_empty();
        let mut order = Order::new(SEED, variants.len());
        let mut in_order: BTreeMap<&str, Rounds> = BTreeMap::new();
        'rounds: for round in 0..=rounds {
            for which in order.next_round() {
                if let Err(ended) = (settings.progress)(round, rounds) {
                    if round < 2 && first {
                        return Err(ended);
                    }
                    self.interrupted = true;
                    break 'rounds;
                }
                let variant = &mut variants[which];
                // Explain only counted rounds, not the warm-up.
                let watch = settings.watch.filter(|_| round > 0);
                let turn = watch.map(|watch| watch.variants().sample(&variant.name));
                let sample = (variant.measure)()?;
                drop(turn);
                if round == 0 {
                    continue;
                }
                for one in sample {
                    let rounds = in_order.entry(one.0).or_default();
                    rounds.resize(round, Vec::new());
                    rounds[round - 1].push((which, one.2));
                    self.sample(&variant.name, one);
                }
            }
        }
        for effect in effects_of_order(&in_order) {
            self.note(effect);
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
            watch: None,
        };
        outcome.measure(&settings, 3, [variant("a"), variant("b")])?;
        Ok(outcome)
    }

    #[test]
    fn samples_before_an_interruption_are_kept() {
        for nothing_yet in 0..4 {
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
