//! Warnings, to be shown before any verdict: differences between the runs other than the one to compare, and
//! problems of each run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Run;
use crate::record::{Head, Line};
use crate::rounds::ORDER;

/// Memory sizes within this factor count as equal: firmware reserves a varying amount.
const SAME_MEMORY: f64 = 1.02;
/// Wake-up times within this factor count as equal, because their measurement is short.
const SAME_WAKE_UP: f64 = 1.5;

/// Differences between the first base run and every other run, and the faults of each run.
pub(super) fn between(base: &[Run<'_>], new: &[Run<'_>]) -> Vec<String> {
    let runs = || base.iter().chain(new);
    let mut found: Vec<String> = runs().flat_map(of_one).collect();
    if let Some(first) = base.first() {
        found.extend(
            runs()
                .skip(1)
                .flat_map(|other| of_two(&first.1.head, &other.1.head)),
        );
    }
    let mut seen = BTreeSet::new();
    found.retain(|text| seen.insert(text.clone()));
    found
}

/// What should be the same: the name, the machine and the settings, but for the order, which each run
/// draws.
fn facts(head: &Head) -> BTreeMap<String, Value> {
    let mut facts = head.settings.clone();
    if let Ok(Value::Object(machine)) = serde_json::to_value(&head.machine) {
        facts.extend(machine);
    }
    facts.insert("name".to_owned(), head.name.clone().into());
    facts.remove(ORDER);
    facts
}

fn of_two(a: &Head, b: &Head) -> Vec<String> {
    let (a, b) = (facts(a), facts(b));
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let different = |name: &String| {
        let (one, other) = (a.get(name), b.get(name));
        // An older version did not record it.
        let number = |value: Option<&Value>| value?.as_f64().filter(|value| *value > 0.0);
        let near = |factor: f64| match (number(one), number(other)) {
            (Some(one), Some(other)) => one.max(other) <= one.min(other) * factor,
            _ => true,
        };
        let is_same = match name.as_str() {
            "memory_mib" => near(SAME_MEMORY),
            "wake_up_us" => near(SAME_WAKE_UP),
            _ => one == other,
        };
        let (here, there) = (lines(one), lines(other));
        let (here, there) = (only(&here, &there), only(&there, &here));
        (!is_same).then(|| format!("different {name}: {here} against {there}"))
    };
    names.into_iter().filter_map(different).collect()
}

/// The lines that the others lack.
fn only(these: &[String], others: &[String]) -> String {
    let own = these.iter().filter(|line| !others.contains(line));
    let own: Vec<&str> = own.map(String::as_str).collect();
    match own.is_empty() {
        true => "nothing".to_owned(),
        false => own.join(", "),
    }
}

/// A value, split into lines.
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

/// The problems of one run.
fn of_one((name, record): &Run<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let how = match record.lines.last() {
        Some(Line::End { why }) if why != "interrupted" => None,
        Some(Line::End { .. }) => Some("was interrupted"),
        _ => Some("is incomplete"),
    };
    if let Some(how) = how {
        found.push(format!(
            "{name} {how}: the samples that it has are compared"
        ));
    }
    if !record.head.machine.optimised {
        found.push(format!(
            "{name} was measured with a debug build: its figures are meaningless"
        ));
    }
    found
}
