//! A workload's run: targets opened, warmed up, measured interleaved round by round, and every sample handed on as it comes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use throughline::OpenOptions;

use super::targets::{self, Needs, Target};
use super::verdicts::{Asked, Verdicts};
use super::work::{Crew, Measured};
use super::{TargetSpec, Workload};
use crate::explain::ours::Watch;
use crate::machine::Machine;
use crate::record::{Better, Head, Latencies, Line, Record, SCHEMA, Sample};
use crate::{Error, Progress, Result};

/// How a workload is to be run.
pub struct Plan<'a> {
    /// What is done.
    pub workload: &'a Workload,
    /// Where files and images are made.
    pub dir: &'a Path,
    /// What is there already may be written over: named files of images, plain files, block devices.
    pub overwrite: bool,
    /// How our engine's targets are opened. Where it begins inside a device holds for those that were there before.
    pub options: &'a OpenOptions,
    /// What the record is to say of that: name and value.
    pub told: BTreeMap<String, Value>,
    /// When it began: RFC 3339, UTC.
    pub started: &'a str,
    /// What is asked of each target but the first. Where that may end the run early, the workload's rounds are the most.
    pub asked: &'a Asked,
    /// Whether the person wants to end. Asked before every operation, by all threads.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
    /// Told of what our engine does with images, if the run is explained.
    pub watch: Option<&'a Watch>,
    /// Told before each sample how many are done, warm-up included, and of how many at the most.
    pub progress: &'a Progress<'a>,
}

/// What a run hands on while it goes on.
#[derive(Debug)]
pub enum Entry<'a> {
    /// First, once all targets are there.
    Head(&'a Head),
    /// Then each line, as soon as it is known.
    Line(&'a Line),
}

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Rounds,
    Certain,
    Interrupted,
}

/// Runs it. `keep` gets everything as it comes; the whole comes back.
///
/// Where [`Plan::interrupted`] says so, the run ends with what it has, its last line saying `interrupted`.
///
/// # Errors
/// No target; one that cannot be opened, or fails; what `keep` says. What was measured before was handed on.
pub fn run(plan: &Plan<'_>, keep: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<Record> {
    let labels = labels(&plan.workload.targets)?;
    let needs = Needs {
        workload: plan.workload,
        dir: plan.dir,
        overwrite: plan.overwrite,
        options: plan.options,
        interrupted: plan.interrupted,
        watch: plan.watch,
    };
    let mut open = Vec::new();
    for (spec, label) in plan.workload.targets.iter().zip(labels) {
        open.push((label, targets::open(spec, &needs)?));
    }
    let mut run = Run {
        plan,
        crew: Crew::new(plan.workload)?,
        verdicts: Verdicts::new(plan.asked, open.len(), plan.workload.rounds as usize),
        this_round: vec![None; open.len()],
        begun: Instant::now(),
        record: Record {
            head: head(plan, &open),
            lines: Vec::new(),
        },
        keep,
    };
    (run.keep)(Entry::Head(&run.record.head))?;
    let ended = run.rounds(&open)?;
    run.verdicts(&open)?;
    for (label, target) in open {
        let met = |error| Error::new(format!("target '{label}': {error}"));
        target.close().map_err(met)?;
    }
    let why = match ended {
        Ended::Rounds => "rounds",
        Ended::Certain => "certain",
        Ended::Interrupted => "interrupted",
    };
    run.line(Line::End { why: why.into() })?;
    Ok(run.record)
}

/// What targets are called; one that is there twice gets a number.
fn labels(specs: &[TargetSpec]) -> Result<Vec<String>> {
    if specs.is_empty() {
        return Err(Error::new(
            "no target: name one with --target, or a list in the file: targets = [\"image:\"]",
        ));
    }
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let label = |spec: &'_ TargetSpec| spec.label().to_owned();
    let mut labels = Vec::new();
    for spec in specs {
        let times = seen.entry(spec.label()).or_default();
        *times += 1;
        labels.push(match *times {
            1 => label(spec),
            times => format!("{} #{times}", spec.label()),
        });
    }
    Ok(labels)
}

fn head(plan: &Plan<'_>, open: &[(String, Box<dyn Target>)]) -> Head {
    let facts: serde_json::Map<String, Value> = open
        .iter()
        .map(|(label, target)| (label.clone(), json!(target.facts())))
        .collect();
    let depth = "each operation under way is a call of a thread of its own";
    let mut settings = BTreeMap::from([
        ("workload".to_owned(), plan.workload.to_toml().into()),
        ("targets".to_owned(), Value::Object(facts)),
        ("dir".to_owned(), plan.dir.display().to_string().into()),
        ("queue depth".to_owned(), depth.into()),
    ]);
    settings.extend(plan.told.clone());
    Head {
        schema: SCHEMA,
        name: plan.workload.name.clone(),
        started: plan.started.to_owned(),
        machine: Machine::here(),
        settings,
    }
}

/// A run under way.
struct Run<'a, 'k> {
    plan: &'a Plan<'a>,
    crew: Crew<'a>,
    verdicts: Verdicts<'a>,
    /// Of each target the value that is asked for, once it is there.
    this_round: Vec<Option<f64>>,
    begun: Instant,
    record: Record,
    keep: &'k mut dyn FnMut(Entry<'_>) -> Result<()>,
}

impl Run<'_, '_> {
    fn line(&mut self, line: Line) -> Result<()> {
        (self.keep)(Entry::Line(&line))?;
        self.record.lines.push(line);
        Ok(())
    }

    /// All rounds, in an order of targets that turns from round to round, so that a slow minute falls on all alike.
    fn rounds(&mut self, open: &[(String, Box<dyn Target>)]) -> Result<Ended> {
        let workload = self.plan.workload;
        let all = workload.warm_up + workload.rounds;
        let samples = all as usize * open.len();
        for turn in 0..all {
            // Those of the warm-up are round 0 in the record, and have offsets of their own all the same.
            let counted = (turn + 1).saturating_sub(workload.warm_up);
            for step in 0..open.len() {
                if (self.plan.interrupted)() {
                    return Ok(Ended::Interrupted);
                }
                (self.plan.progress)(turn as usize * open.len() + step, samples)?;
                let which = (step + turn as usize) % open.len();
                let (label, target) = &open[which];
                let met = |error| Error::new(format!("target '{label}': {error}"));
                let done = self.crew.round(&**target, turn, self.plan.interrupted);
                let Some(measured) = done.map_err(met)? else {
                    return Ok(Ended::Interrupted);
                };
                self.measured(which, label, counted, &measured)?;
            }
            if counted > 0 && !self.goes_on()? {
                break;
            }
        }
        if self.verdicts.are_certain() {
            return Ok(Ended::Certain);
        }
        (self.plan.progress)(samples, samples)?;
        Ok(Ended::Rounds)
    }

    /// Whether more rounds could change an answer.
    fn goes_on(&mut self) -> Result<bool> {
        let values: Option<Vec<f64>> = self.this_round.iter_mut().map(Option::take).collect();
        let quantity = self.verdicts.quantity();
        let columns = self.record.columns();
        let of_it = columns.iter().find(|column| column.quantity == quantity);
        let (Some(values), Some(column)) = (values, of_it) else {
            let mut names: Vec<_> = columns
                .iter()
                .map(|column| column.quantity.as_str())
                .collect();
            names.sort_unstable();
            names.dedup();
            return Err(Error::new(format!(
                "nothing called '{quantity}' is measured here; there are {}",
                names.join("; ")
            )));
        };
        Ok(self.verdicts.push(column.better, &values))
    }

    /// What the others are, held against the first target.
    fn verdicts(&mut self, open: &[(String, Box<dyn Target>)]) -> Result<()> {
        let quantity = self.verdicts.quantity().to_owned();
        let judgements = self.verdicts.judgements();
        for ((label, _), judgement) in open.iter().skip(1).zip(judgements) {
            let text = format!(
                "{quantity} of '{label}' against '{}': {judgement}",
                open[0].0
            );
            self.line(Line::Note { text })?;
        }
        Ok(())
    }

    /// Takes in what one round on one target came to.
    fn measured(
        &mut self,
        which: usize,
        label: &str,
        round: u32,
        measured: &Measured,
    ) -> Result<()> {
        let at_s = self.begun.elapsed().as_secs_f64();
        let bytes = measured.operations * self.plan.workload.block_bytes;
        let seconds = measured.spent.wall.as_secs_f64().max(1e-9);
        let times = &measured.times;
        let mut values = vec![
            (
                "throughput",
                "MB/s",
                Better::Higher,
                measured.spent.mb_per_s(bytes),
            ),
            (
                "operations",
                "per s",
                Better::Higher,
                measured.operations as f64 / seconds,
            ),
            (
                "cpu",
                "s/GiB",
                Better::Lower,
                measured.spent.cpu_s_per_gib(bytes),
            ),
            (
                "cpu of the machine",
                "s/GiB",
                Better::Lower,
                measured.spent.machine_cpu_s_per_gib(bytes),
            ),
        ];
        let kinds = [
            (
                ["read, median", "read, 99th percentile"],
                "read",
                &times.reads,
            ),
            (
                ["write, median", "write, 99th percentile"],
                "write",
                &times.writes,
            ),
            (
                ["sync, median", "sync, 99th percentile"],
                "sync",
                &times.syncs,
            ),
        ];
        for ([median, late], _, times) in kinds.iter().filter(|(.., times)| !times.is_empty()) {
            let us = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
            values.push((median, "us", Better::Lower, us(0.5)));
            values.push((late, "us", Better::Lower, us(0.99)));
        }
        for (quantity, unit, better, value) in values {
            if round > 0 && quantity == self.verdicts.quantity() {
                self.this_round[which] = Some(value);
            }
            self.line(Line::Sample(Sample {
                series: label.to_owned(),
                quantity: quantity.to_owned(),
                unit: unit.to_owned(),
                better,
                round,
                value,
                at_s: Some(at_s),
            }))?;
        }
        for (_, quantity, times) in kinds.iter().filter(|(.., times)| !times.is_empty()) {
            self.line(Line::Latencies(Latencies {
                series: label.to_owned(),
                quantity: (*quantity).to_owned(),
                round,
                classes_us: classes(times),
            }))?;
        }
        Ok(())
    }
}

/// Upper limits in microseconds, and how many took so long.
fn classes(times: &Histogram<u64>) -> Vec<(f64, u64)> {
    times
        .iter_recorded()
        .map(|class| {
            let limit_ns = times.highest_equivalent(class.value_iterated_to());
            (limit_ns as f64 / 1e3, class.count_since_last_iteration())
        })
        .collect()
}
