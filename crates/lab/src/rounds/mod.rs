//! Measures targets in rounds: each target once per round, in a new random order each time. Used for
//! workloads and for commands.
//!
//! Invariants:
//! - Sample `round` of one target is taken close to sample `round` of every other target.
//! - Each sample is passed on before the next one starts, so an interrupted run keeps its samples.
//! - A run that may stop early records its maximum number of rounds ([`Head::max_rounds`]), so that readers
//!   judge it at the same looks as the run itself.

mod order;
mod verdicts;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::Value;

use crate::record::{Better, Head, Latencies, Line, Record, Sample, Writer};
use crate::workload::Plan;
use crate::{Error, Progress, Result};

pub(crate) use order::Order;
pub use verdicts::Asked;
use verdicts::Verdicts;

/// The setting that records the order in which targets were measured.
pub(crate) const ORDER: &str = "order of targets";

/// Parameters common to all runs.
pub struct Terms<'a> {
    /// Counted rounds; the maximum if the run may stop early.
    pub rounds: u32,
    /// Seed for the order of the targets.
    pub seed: u64,
    /// The question about each target except the first.
    pub asked: &'a Asked,
    /// When the run started: RFC 3339, UTC.
    pub started: &'a str,
    /// Returns whether the user wants to stop. Polled by all threads.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
    /// Called before each sample with the number of completed samples, including warm-up, and the maximum.
    pub progress: &'a Progress<'a>,
}

/// Opens the file of a run's record, which may be `None`, once all targets are open.
pub type Open<'a> = dyn FnMut(&Head) -> Result<Option<Writer>> + 'a;

/// Measures the target of this number; `None` if interrupted.
pub(crate) type Measure<'a> = dyn FnMut(usize) -> Result<Option<Taken>> + 'a;

/// Rounds that are not counted.
const WARM_UP: u32 = 1;

/// One measured value of a sample.
pub(crate) struct Measured {
    pub(crate) quantity: Cow<'static, str>,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) value: f64,
}

impl Measured {
    /// A value, and whether more or less of it is better.
    pub(crate) fn new(
        quantity: impl Into<Cow<'static, str>>,
        unit: &'static str,
        better: Better,
        value: f64,
    ) -> Measured {
        Measured {
            quantity: quantity.into(),
            unit,
            better,
            value,
        }
    }
}

/// Classes of latencies, as in [`Latencies`].
pub(crate) type Classes = Vec<(f64, u64)>;

/// The result of measuring one target once.
pub(crate) struct Taken {
    pub(crate) values: Vec<Measured>,
    /// Latencies of single operations, by quantity.
    pub(crate) latencies: Vec<(Cow<'static, str>, Classes)>,
}

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Rounds,
    Certain,
    Interrupted,
}

/// Unique names for targets. Repeated names are numbered.
///
/// # Errors
/// If there is no target.
pub fn labels<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<String>> {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let mut labels = Vec::new();
    for name in names {
        let times = seen.entry(name).or_default();
        *times += 1;
        labels.push(match *times {
            1 => name.to_owned(),
            times => format!("{name} #{times}"),
        });
    }
    match labels.is_empty() {
        true => Err(Error::new("no target: name one with --target")),
        false => Ok(labels),
    }
}

/// A run in progress.
pub(crate) struct Run<'a> {
    terms: &'a Terms<'a>,
    /// The name of each target.
    labels: Vec<String>,
    order: Order,
    verdicts: Verdicts<'a>,
    /// For each target, this round's value of the quantity in question, if measured.
    this_round: Vec<Option<f64>>,
    /// Every quantity measured so far, with the direction that is better.
    quantities: BTreeMap<Cow<'static, str>, Better>,
    begun: Instant,
    record: Record,
    file: Option<Writer>,
}

impl<'a> Run<'a> {
    /// Starts a run of targets with these labels, of each of which a fact is recorded, and these settings.
    pub(crate) fn begin(
        plan: &Plan<'a>,
        name: &str,
        labels: Vec<String>,
        facts: Vec<Value>,
        mut settings: BTreeMap<String, Value>,
        open: &mut Open<'_>,
    ) -> Result<Run<'a>> {
        let terms = plan.terms;
        let order = format!("drawn anew for each round, seed {}", terms.seed);
        settings.insert(ORDER.to_owned(), order.into());
        let facts: serde_json::Map<_, _> = labels.iter().cloned().zip(facts).collect();
        settings.insert("targets".to_owned(), facts.into());
        let mut head = Head::new(name, terms.started, settings);
        head.max_rounds = terms.asked.until.map(|_| terms.rounds);
        Ok(Run {
            terms,
            order: Order::new(terms.seed, labels.len()),
            verdicts: Verdicts::new(terms.asked, labels.len(), terms.rounds as usize),
            this_round: vec![None; labels.len()],
            quantities: BTreeMap::new(),
            begun: Instant::now(),
            file: open(&head)?,
            record: Record {
                head,
                lines: Vec::new(),
            },
            labels,
        })
    }

    /// Runs all rounds, then compares each target with the first.
    pub(crate) fn rounds(&mut self, measure: &mut Measure<'_>) -> Result<Ended> {
        let ended = self.measure_all(measure)?;
        let (quantity, first) = (self.verdicts.quantity(), &self.labels[0]);
        let others = self.labels.iter().skip(1).zip(self.verdicts.judgements());
        let notes: Vec<Line> = others
            .map(|(label, judgement)| Line::Note {
                text: format!("{quantity} of '{label}' against '{first}': {judgement}"),
            })
            .collect();
        notes.into_iter().try_for_each(|note| self.line(note))?;
        Ok(ended)
    }

    /// Writes the last line.
    pub(crate) fn end(mut self, ended: Ended) -> Result<Record> {
        let why = match ended {
            Ended::Rounds => "rounds",
            Ended::Certain => "certain",
            Ended::Interrupted => "interrupted",
        };
        self.line(Line::End { why: why.into() })?;
        Ok(self.record)
    }

    fn line(&mut self, line: Line) -> Result<()> {
        if let Some(file) = &mut self.file {
            file.line(&line)?;
        }
        self.record.lines.push(line);
        Ok(())
    }

    fn measure_all(&mut self, measure: &mut Measure<'_>) -> Result<Ended> {
        let targets = self.labels.len();
        let all = WARM_UP + self.terms.rounds;
        let samples = all as usize * targets;
        for turn in 0..all {
            // In the record, warm-up rounds are round 0, but each has its own turn.
            let counted = (turn + 1).saturating_sub(WARM_UP);
            for (step, which) in self.order.next_round().into_iter().enumerate() {
                if (self.terms.interrupted)() {
                    return Ok(Ended::Interrupted);
                }
                (self.terms.progress)(turn as usize * targets + step, samples)?;
                let label = self.labels[which].clone();
                let met = |error| Error::new(format!("target '{label}': {error}"));
                let Some(taken) = measure(which).map_err(met)? else {
                    return Ok(Ended::Interrupted);
                };
                self.taken(which, &label, counted, taken)?;
            }
            if counted > 0 && !self.goes_on()? {
                break;
            }
        }
        if self.verdicts.are_certain() {
            return Ok(Ended::Certain);
        }
        (self.terms.progress)(samples, samples)?;
        Ok(Ended::Rounds)
    }

    /// Whether more rounds could change an answer.
    fn goes_on(&mut self) -> Result<bool> {
        let values: Option<Vec<f64>> = self.this_round.iter_mut().map(Option::take).collect();
        let quantity = self.verdicts.quantity();
        let (Some(values), Some(better)) = (values, self.quantities.get(quantity)) else {
            let names: Vec<&str> = self.quantities.keys().map(Cow::as_ref).collect();
            return Err(Error::new(format!(
                "no quantity '{quantity}' is measured here; there are {}",
                names.join("; ")
            )));
        };
        Ok(self.verdicts.push(*better, &values))
    }

    /// Records one measurement of a target.
    fn taken(&mut self, which: usize, label: &str, round: u32, taken: Taken) -> Result<()> {
        let at_s = self.begun.elapsed().as_secs_f64();
        for one in taken.values {
            self.quantities.insert(one.quantity.clone(), one.better);
            if round > 0 && one.quantity == self.verdicts.quantity() {
                self.this_round[which] = Some(one.value);
            }
            self.line(Line::Sample(Sample {
                series: label.to_owned(),
                quantity: one.quantity.into_owned(),
                unit: one.unit.to_owned(),
                better: one.better,
                round,
                value: one.value,
                at_s: Some(at_s),
            }))?;
        }
        for (quantity, classes_us) in taken.latencies {
            self.line(Line::Latencies(Latencies {
                series: label.to_owned(),
                quantity: quantity.into_owned(),
                round,
                classes_us,
            }))?;
        }
        Ok(())
    }
}
