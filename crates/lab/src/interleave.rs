//! Running variants interleaved: one sample of each per round, in an order that turns from round to round, so
//! that a slow minute of the machine falls on all of them alike.

use std::collections::BTreeMap;

use crate::outcome::Outcome;
use crate::{Progress, Result};

/// Quantities of one sample: name, unit, value.
pub type Sample = Vec<(&'static str, &'static str, f64)>;

/// One way to do the work, measured once per call.
pub struct Variant<'a> {
    /// Its name in the tables.
    pub name: String,
    /// Does the work once and says what it measured.
    pub measure: Box<dyn FnMut() -> Result<Sample> + 'a>,
}

impl<'a> Variant<'a> {
    /// A variant of this name.
    pub fn new(
        name: impl Into<String>,
        measure: impl FnMut() -> Result<Sample> + 'a,
    ) -> Variant<'a> {
        Variant {
            name: name.into(),
            measure: Box::new(measure),
        }
    }
}

/// Runs every variant once unmeasured (warm-up), then `rounds` times, and puts the samples into `outcome`.
pub fn interleave(
    outcome: &mut Outcome,
    variants: &mut [Variant<'_>],
    rounds: usize,
    progress: &Progress<'_>,
) -> Result<()> {
    type Collected = BTreeMap<&'static str, (&'static str, Vec<f64>)>;
    let mut collected: Vec<Collected> = variants.iter().map(|_| BTreeMap::new()).collect();
    for round in 0..=rounds {
        for step in 0..variants.len() {
            progress(round, rounds)?;
            let which = (step + round) % variants.len();
            let sample = (variants[which].measure)()?;
            if round == 0 {
                continue;
            }
            for (quantity, unit, value) in sample {
                collected[which]
                    .entry(quantity)
                    .or_insert((unit, Vec::new()))
                    .1
                    .push(value);
            }
        }
    }
    for (variant, quantities) in variants.iter().zip(collected) {
        for (quantity, (unit, samples)) in quantities {
            outcome.series(&variant.name, quantity, unit, samples);
        }
    }
    Ok(())
}
