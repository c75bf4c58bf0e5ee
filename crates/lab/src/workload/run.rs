//! Runs a workload: opens the targets, warms up, measures in rounds ([`rounds`](crate::rounds)), and closes
//! them.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use throughline::OpenOptions;
use throughline_explain::ours::Watch;

use super::Workload;
use super::targets::{self, Needs, Target};
use super::work::{Crew, Done, Times};
use crate::record::{Better, Record};
use crate::rounds::{self, Entry, Measured, Run, Subjects, Taken, Terms};
use crate::{Error, Result};

/// How to run a workload.
pub struct Plan<'a> {
    /// The workload, with its number of rounds. If the run may stop early, that is the maximum.
    pub workload: &'a Workload,
    /// Where files and images are created.
    pub dir: &'a Path,
    /// Whether existing data may be overwritten: named files in images, plain files, block devices.
    pub overwrite: bool,
    /// Options for opening targets of our engine. The offset into a device applies only to targets that
    /// existed before.
    pub options: &'a OpenOptions,
    /// Records what our engine does with images, if the run is explained.
    pub watch: Option<&'a Watch>,
    /// Parameters common to all runs.
    pub terms: &'a Terms<'a>,
}

/// Runs the workload. `keep` receives every entry as it is produced. Returns the whole record.
///
/// If [`Terms::interrupted`] returns true, the run ends with the samples taken so far, and its last line says
/// `interrupted`.
///
/// # Errors
/// If there is no target, if a target cannot be opened or fails, and errors of `keep`. Everything measured
/// before was passed to `keep`.
pub fn run(plan: &Plan<'_>, keep: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<Record> {
    let names = plan.workload.targets.iter().map(|spec| spec.label());
    let labels = rounds::labels(names)?;
    let needs = Needs {
        workload: plan.workload,
        dir: plan.dir,
        overwrite: plan.overwrite,
        options: plan.options,
        interrupted: plan.terms.interrupted,
        watch: plan.watch,
    };
    let mut open = Vec::new();
    for spec in &plan.workload.targets {
        open.push(targets::open(spec, &needs)?);
    }
    let mut targets = Targets {
        plan,
        crew: Crew::new(plan.workload)?,
        labels,
        open,
    };
    let head = rounds::head(&plan.workload.name, plan.terms, targets.settings());
    let mut run = Run::begin(plan.terms, targets.open.len(), head, keep)?;
    let ended = run.rounds(&mut targets)?;
    for (label, target) in targets.labels.iter().zip(targets.open) {
        let met = |error| Error::new(format!("target '{label}': {error}"));
        target.close().map_err(met)?;
    }
    run.end(ended)
}

/// The open targets.
struct Targets<'a> {
    plan: &'a Plan<'a>,
    crew: Crew<'a>,
    labels: Vec<String>,
    open: Vec<Box<dyn Target>>,
}

impl Targets<'_> {
    /// The targets' settings for the record.
    fn settings(&self) -> BTreeMap<String, Value> {
        let facts: serde_json::Map<String, Value> = self
            .labels
            .iter()
            .zip(&self.open)
            .map(|(label, target)| (label.clone(), json!(target.facts())))
            .collect();
        let depth = "each operation in flight is a call in a thread of its own";
        BTreeMap::from([
            ("workload".to_owned(), self.plan.workload.to_toml().into()),
            ("targets".to_owned(), Value::Object(facts)),
            ("dir".to_owned(), self.plan.dir.display().to_string().into()),
            ("queue depth".to_owned(), depth.into()),
        ])
    }
}

impl Subjects for Targets<'_> {
    fn labels(&self) -> &[String] {
        &self.labels
    }

    fn measure(&mut self, which: usize, turn: u32) -> Result<Option<Taken>> {
        let interrupted = self.plan.terms.interrupted;
        let done = self.crew.round(&*self.open[which], turn, interrupted)?;
        let block_bytes = self.plan.workload.block_bytes;
        Ok(done.map(|mut done| taken(&mut done, block_bytes)))
    }
}

/// The result of one round on one target, for the record.
fn taken(done: &mut Done, block_bytes: u64) -> Taken {
    let bytes = done.operations * block_bytes;
    let seconds = done.spent.wall.as_secs_f64().max(1e-9);
    let of = |quantity, unit, better, value| Measured::new(quantity, unit, better, value);
    let (higher, lower, spent) = (Better::Higher, Better::Lower, &done.spent);
    let rate = done.operations as f64 / seconds;
    let machine_cpu = spent.machine_cpu_s_per_gib(bytes);
    let mut taken = Taken {
        values: vec![
            of("throughput", "MB/s", higher, spent.mb_per_s(bytes)),
            of("operations", "per s", higher, rate),
            of("cpu", "s/GiB", lower, spent.cpu_s_per_gib(bytes)),
            of("cpu of the machine", "s/GiB", lower, machine_cpu),
        ],
        latencies: Vec::new(),
    };
    let Times {
        reads,
        writes,
        syncs,
    } = &mut done.times;
    for (times, of_them, median, late) in [
        (reads, "read", "read, median", "read, 99th percentile"),
        (writes, "write", "write, median", "write, 99th percentile"),
        (syncs, "sync", "sync, median", "sync, 99th percentile"),
    ] {
        if times.is_empty() {
            continue;
        }
        times.sort();
        for (quantity, share) in [(median, 0.5), (late, 0.99)] {
            let us = times.at(share) as f64 / 1e3;
            taken.values.push(of(quantity, "us", Better::Lower, us));
        }
        taken.latencies.push((of_them.into(), times.classes_us()));
    }
    taken
}
