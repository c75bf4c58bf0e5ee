//! [`Report`]: result files in readable form, as one self-contained page and as a mail.
//!
//! The page contains everything that it shows: it makes no requests, and its content security policy (CSP)
//! forbids any. Tables are part of its text, so they can be read, searched and printed without scripts. Plots
//! are drawn from embedded data, by a few hundred lines of plain JavaScript that create SVG (`assets/`). No
//! small library draws strips, intervals, percentiles and pipelines, and elements in the document can be
//! tested, printed and reached by keyboard.
//!
//! Invariants:
//! - The first sentence is the answer. Warnings that the reader needs before trusting it come next.
//! - Names from a file are data: they are escaped in the page's text, in its JSON, and in the mail.
//! - Any [`Record`] gives a report: without samples, with one, with a hundred thousand, with NaN, or torn.

mod accounts;
#[cfg(test)]
mod browser;
mod compare;
mod html;
mod latency;
mod markdown;
mod page;
mod samples;
#[cfg(test)]
mod testing;
mod text;
mod trace;
mod verdict;

use std::collections::BTreeMap;

use crate::record::{Line, Record, effects_of_order};
use crate::{Error, Result};

use compare::Compared;
use samples::Quantity;
use verdict::Headline;

/// One or several runs, ready to be shown. The others are compared with the first.
#[derive(Debug)]
pub struct Report {
    sources: Vec<Source>,
    entities: Vec<Entity>,
    quantities: Vec<Quantity>,
    latencies: Vec<latency::Plot>,
    traces: Vec<trace::Trace>,
    accounts: accounts::Accounts,
    comparisons: Vec<Compared>,
    warnings: Vec<String>,
    headline: Headline,
}

/// A run and its label.
#[derive(Debug)]
struct Source {
    label: String,
    record: Record,
}

/// A series of a run; each has its own colour.
#[derive(Clone, Debug, serde::Serialize)]
struct Entity {
    label: String,
}

impl Report {
    /// Makes a report of runs, each with a name that distinguishes it.
    ///
    /// # Errors
    /// If there is no run.
    pub fn of(runs: Vec<(String, Record)>) -> Result<Report> {
        if runs.is_empty() {
            return Err(Error::new("there is no result to show"));
        }
        let sources = named_apart(runs);
        let records: Vec<&Record> = sources.iter().map(|source| &source.record).collect();
        let mut entities = Entities::of(&sources);
        let quantities = samples::quantities(&records, |run, series| entities.number(run, series));
        let latencies = latency::plots(&records, |run, series| entities.number(run, series));
        let mut traces = Vec::new();
        for (run, record) in records.iter().enumerate() {
            for line in &record.lines {
                if let Line::Trace { series, events } = line {
                    traces.push(trace::of(entities.number(run, series), events));
                }
            }
        }
        let accounts = accounts::of(&records, |run, series| entities.number(run, series));
        let (comparisons, mut warnings) = compare::all(&sources);
        warnings.extend(accounts.warnings.iter().cloned());
        if comparisons.is_empty() {
            warnings.extend(sources.iter().flat_map(Source::warnings));
        }
        let no_numbers: usize = quantities
            .iter()
            .flat_map(|q| &q.rows)
            .map(|row| row.no_numbers)
            .sum();
        if no_numbers > 0 {
            warnings.push(text::not_finite(no_numbers));
        }
        let entities = entities.list;
        let headline = verdict::headline(&sources, &comparisons, &quantities, &accounts, &entities);
        Ok(Report {
            sources,
            entities,
            quantities,
            latencies,
            traces,
            accounts,
            comparisons,
            warnings,
            headline,
        })
    }

    /// The result in one sentence.
    pub fn headline(&self) -> &str {
        &self.headline.sentence
    }

    /// The page: a single file without dependencies.
    pub fn html(&self) -> String {
        html::page(self)
    }

    /// The mail: Markdown that reads as plain text, 78 columns wide.
    pub fn markdown(&self) -> String {
        markdown::mail(self)
    }

    /// The notes of the runs. If there are several runs, each note has the name of its run.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for Source { label, record } in &self.sources {
            for line in &record.lines {
                let Line::Note { text } = line else { continue };
                let text = text::one_line(text);
                notes.push(match self.sources.len() {
                    1 => text,
                    _ => format!("{label}: {text}"),
                });
            }
        }
        notes
    }

    fn title(&self) -> String {
        let mut names: Vec<&str> = self
            .sources
            .iter()
            .map(|s| s.record.head.name.as_str())
            .collect();
        names.dedup();
        text::one_line(&names.join(", "))
    }
}

impl Source {
    /// Warnings that the reader needs before trusting a figure.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.record.head.machine.optimised {
            warnings.push(format!(
                "{} was measured with a debug build: its figures are meaningless",
                self.label
            ));
        }
        if !self.record.is_whole() {
            warnings.push(format!(
                "{} is incomplete: the run was killed, and only the samples taken before are included",
                self.label
            ));
        }
        let effects = effects_of_order(&self.record);
        warnings.extend(effects.iter().map(|effect| text::one_line(effect)));
        warnings
    }
}

/// Adds numbers to runs that have the same name.
fn named_apart(runs: Vec<(String, Record)>) -> Vec<Source> {
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let named = |(label, record): (String, Record)| {
        let label = text::one_line(&label);
        let times = taken.entry(label.clone()).or_default();
        *times += 1;
        let label = match *times {
            1 => label,
            number => format!("{label} ({number})"),
        };
        Source { label, record }
    };
    runs.into_iter().map(named).collect()
}

/// Numbers the series of the runs in order of appearance.
struct Entities<'a> {
    sources: &'a [Source],
    /// Whether every run has at most one series, so that the run's name is sufficient.
    by_run: bool,
    numbers: BTreeMap<(usize, String), usize>,
    list: Vec<Entity>,
}

impl<'a> Entities<'a> {
    fn of(sources: &'a [Source]) -> Entities<'a> {
        let alone = |source: &Source| {
            let mut series = source.record.lines.iter().filter_map(|line| match line {
                Line::Sample(sample) => Some(sample.series.as_str()),
                Line::Latencies(times) => Some(times.series.as_str()),
                Line::Trace { series, .. } => Some(series.as_str()),
                Line::Account(account) => Some(account.series.as_str()),
                _ => None,
            });
            let first = series.next();
            series.all(|other| Some(other) == first)
        };
        Entities {
            sources,
            by_run: sources.len() > 1 && sources.iter().all(alone),
            numbers: BTreeMap::new(),
            list: Vec::new(),
        }
    }

    fn number(&mut self, run: usize, series: &str) -> usize {
        if let Some(number) = self.numbers.get(&(run, series.to_owned())) {
            return *number;
        }
        let label = match (self.sources.len(), self.by_run) {
            (1, _) => text::one_line(series),
            (_, true) => self.sources[run].label.clone(),
            _ => format!("{} ({})", text::one_line(series), self.sources[run].label),
        };
        let number = self.list.len();
        self.numbers.insert((run, series.to_owned()), number);
        self.list.push(Entity { label });
        number
    }
}
