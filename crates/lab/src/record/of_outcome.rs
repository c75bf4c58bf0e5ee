//! The [`Record`] of an experiment's [`Outcome`].

use std::collections::BTreeMap;

use super::{Better, Head, Line, Record, SCHEMA, Sample};
use crate::outcome::Outcome;

/// Units of which less is better; of others more is.
const LESS_IS_BETTER: &[&str] = &["us", "ms", "s", "s/GiB", "MiB", "KiB"];

impl Record {
    /// What an experiment found, which began then (RFC 3339) with these settings.
    pub fn of(
        outcome: &Outcome,
        started: &str,
        settings: BTreeMap<String, serde_json::Value>,
    ) -> Record {
        let mut lines = Vec::new();
        for (series, quantities) in &outcome.variants {
            for (quantity, found) in quantities {
                let better = match LESS_IS_BETTER.contains(&found.unit) {
                    true => Better::Lower,
                    false => Better::Higher,
                };
                lines.extend(found.samples.iter().zip(1..).map(|(value, round)| {
                    Line::Sample(Sample {
                        series: series.clone(),
                        quantity: quantity.clone(),
                        unit: found.unit.to_owned(),
                        better,
                        round,
                        value: *value,
                        at_s: None,
                    })
                }));
            }
        }
        let named = |(name, ratio): (&String, &_)| Line::Ratio {
            name: name.clone(),
            ratio: *ratio,
        };
        lines.extend(outcome.ratios.iter().map(named));
        lines.extend(outcome.counters.iter().map(|(name, value)| Line::Count {
            name: name.clone(),
            value: *value,
        }));
        lines.extend(outcome.bars.iter().cloned().map(Line::Bar));
        let note = |text: &String| Line::Note { text: text.clone() };
        lines.extend(outcome.notes.iter().map(note));
        let why = match outcome.interrupted {
            true => "interrupted",
            false => "rounds",
        };
        lines.push(Line::End { why: why.into() });
        Record {
            head: Head {
                schema: SCHEMA,
                name: outcome.experiment.to_owned(),
                started: started.to_owned(),
                machine: outcome.machine.clone(),
                max_rounds: None,
                settings,
            },
            lines,
        }
    }
}
