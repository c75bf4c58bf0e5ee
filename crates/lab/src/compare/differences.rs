//! Warnings, to be shown before any verdict: differences between the runs other than the one to compare, and
//! problems of each run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde_json::Value;

use super::{Run, listed};
use crate::record::{Head, Line, Machine, effects_of_order};
use crate::rounds::ORDER;

/// Memory sizes within this factor count as equal: firmware reserves a varying amount.
const SAME_MEMORY: f64 = 1.02;
/// Wake-up times within this factor count as equal, because their measurement is short.
const SAME_WAKE_UP: f64 = 1.5;

/// Differences between the first base run and every other run, and the faults of each run.
pub(super) fn between(base: &[Run<'_>], new: &[Run<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for run in base.iter().chain(new) {
        found.extend(of_one(run));
    }
    let Some(first) = base.first() else {
        return found;
    };
    for other in base.iter().chain(new).skip(1) {
        of_two(&first.1.head, &other.1.head, &mut found);
    }
    let mut seen = BTreeSet::new();
    found.retain(|text| seen.insert(text.clone()));
    found
}

fn of_two(a: &Head, b: &Head, found: &mut Vec<String>) {
    let mut differ = |what: &str, a: &dyn Display, b: &dyn Display| {
        let (a, b) = (a.to_string(), b.to_string());
        if a != b {
            found.push(format!("different {what}: {a} against {b}"));
        }
    };
    differ("workloads", &a.name, &b.name);
    machines(&a.machine, &b.machine, &mut differ);
    for (name, a, b) in settings(&a.settings, &b.settings) {
        differ(&format!("settings of '{name}'"), &a, &b);
    }
}

/// The settings that differ, with both values. Of long texts, such as a workload file, only the lines that
/// differ.
fn settings(
    a: &BTreeMap<String, Value>,
    b: &BTreeMap<String, Value>,
) -> Vec<(String, String, String)> {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    // The order is skipped: it always differs, because each run draws its own.
    let differing = names
        .into_iter()
        .filter(|name| *name != ORDER && a.get(*name) != b.get(*name));
    let both = differing.map(|name| {
        let (here, there) = (lines(a.get(name)), lines(b.get(name)));
        let only = |these: &[String], others: &[String]| {
            let own: Vec<&str> = these
                .iter()
                .filter(|line| !others.contains(line))
                .map(String::as_str)
                .collect();
            match own.is_empty() {
                true => "nothing".to_owned(),
                false => own.join(", "),
            }
        };
        (name.clone(), only(&here, &there), only(&there, &here))
    });
    both.collect()
}

/// A setting, split into lines.
fn lines(value: Option<&Value>) -> Vec<String> {
    match value {
        None => Vec::new(),
        Some(Value::String(text)) => text.lines().map(|line| line.trim().to_owned()).collect(),
        Some(Value::Object(parts)) => {
            let part = |(name, value): (&String, &Value)| format!("{name}: {value}");
            parts.iter().map(part).collect()
        }
        Some(other) => vec![other.to_string()],
    }
}

fn machines(a: &Machine, b: &Machine, differ: &mut dyn FnMut(&str, &dyn Display, &dyn Display)) {
    let near = |a: f64, b: f64, factor: f64| a.max(b) <= a.min(b) * factor;
    differ("processors", &a.cpu, &b.cpu);
    differ("numbers of processors", &a.cpus, &b.cpus);
    if !near(a.memory_mib as f64, b.memory_mib as f64, SAME_MEMORY) {
        differ("sizes of memory (MiB)", &a.memory_mib, &b.memory_mib);
    }
    differ("kernels", &a.kernel, &b.kernel);
    differ("versions of throughline", &a.version, &b.version);
    let build = |optimised: bool| if optimised { "optimised" } else { "debug" };
    differ("builds", &build(a.optimised), &build(b.optimised));
    if a.wake_up_us > 0.0 && b.wake_up_us > 0.0 && !near(a.wake_up_us, b.wake_up_us, SAME_WAKE_UP) {
        let shown = |us: f64| format!("{us:.1}");
        differ(
            "wake-up times (µs)",
            &shown(a.wake_up_us),
            &shown(b.wake_up_us),
        );
    }
    let poll = |ns: Option<u64>| ns.map_or("none".to_owned(), |ns| ns.to_string());
    differ(
        "guest_halt_poll_ns",
        &poll(a.guest_halt_poll_ns),
        &poll(b.guest_halt_poll_ns),
    );
    let goes = |leaves: bool| {
        if leaves {
            "returned to the host"
        } else {
            "kept"
        }
    };
    differ(
        "ways to treat free memory",
        &goes(a.free_memory_leaves),
        &goes(b.free_memory_leaves),
    );
}

/// The problems of one run.
fn of_one((name, record): &Run<'_>) -> Vec<String> {
    let mut found = Vec::new();
    if !record.is_whole() {
        found.push(format!(
            "{name} is incomplete: the samples that it has are compared"
        ));
    } else if let Some(Line::End { why }) = record.lines.last()
        && why == "interrupted"
    {
        found.push(format!(
            "{name} was interrupted: the samples that it has are compared"
        ));
    }
    if !record.head.machine.optimised {
        found.push(format!(
            "{name} was measured with a debug build: its figures are meaningless"
        ));
    }
    found.extend(
        effects_of_order(record)
            .iter()
            .map(|effect| format!("{name}: {effect}")),
    );
    let columns = record.columns();
    let twice =
        |column: &&crate::record::Column| column.samples.windows(2).any(|two| two[0].0 == two[1].0);
    let doubled: Vec<&str> = columns
        .iter()
        .filter(twice)
        .map(|column| column.series.as_str())
        .collect();
    if !doubled.is_empty() {
        let names = listed(&doubled);
        found.push(format!(
            "{name} has several samples of one round in {names}: two runs in one file?"
        ));
    }
    found
}
