//! [`Report`]: result files as one self-contained page: the tables of the terminal, and pictures of what
//! tables do not show.
//!
//! Invariants:
//! - The page makes no requests and has no scripts; its content security policy (CSP) forbids both.
//! - Names from a file are data: they are escaped.
//! - Any [`Record`] gives a page of bounded size: without samples, with one, with a hundred thousand, with
//!   NaN, or torn.

mod pictures;
mod svg;
#[cfg(test)]
mod tests;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use throughline_explain::table;

use crate::compare::{Choice, Comparison};
use crate::record::{Line, Record, Table};
use crate::stats::Verdict;
use crate::{Error, Result};
use pictures::{Interval, Series};

const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
const STYLE: &str = include_str!("report.css");

/// One or several runs. The others are compared with the first.
pub struct Report {
    /// Each with its name.
    runs: Vec<(String, Record)>,
    /// Each later run beside the first.
    compared: Vec<Result<Comparison>>,
}

impl Report {
    /// Makes a report of runs, each with a name that distinguishes it.
    ///
    /// # Errors
    /// If there is no run.
    pub fn of(runs: Vec<(String, Record)>) -> Result<Report> {
        let Some(((name, base), others)) = runs.split_first() else {
            return Err(Error::new("there is no result to show"));
        };
        // What `explain` has written has no samples.
        let others = others
            .iter()
            .filter(|(_, new)| !base.columns().is_empty() || !new.columns().is_empty());
        let compare = |(other, new): &(String, Record)| {
            Comparison::of_runs(&[(name, base)], &[(other, new)], &Choice::default())
        };
        let compared = others.map(compare).collect();
        Ok(Report { runs, compared })
    }

    /// The result in one sentence.
    pub fn headline(&self) -> String {
        let rows: Vec<_> = self
            .compared
            .iter()
            .flatten()
            .flat_map(|one| &one.rows)
            .collect();
        let kinds = [
            Verdict::Slower,
            Verdict::Faster,
            Verdict::NoDifference,
            Verdict::NotEnough,
        ];
        let of_kind = |verdict: Verdict| {
            let of_it = rows.iter().filter(|row| row.judgement.verdict == verdict);
            let count = of_it.count();
            (count > 0).then(|| format!("{count} {verdict}"))
        };
        let kinds: Vec<String> = kinds.into_iter().filter_map(of_kind).collect();
        if !kinds.is_empty() {
            return format!("beside '{}': {}", clean(&self.runs[0].0), kinds.join(", "));
        }
        let bars = self.runs.iter().flat_map(|(_, record)| &record.lines);
        let bars: Vec<bool> = bars
            .filter_map(|line| match line {
                Line::Bar(bar) => Some(bar.met),
                _ => None,
            })
            .collect();
        match bars.len() {
            0 => clean(&self.runs[0].1.head.name),
            all => format!(
                "{} of {all} limits met",
                bars.iter().filter(|met| **met).count()
            ),
        }
    }

    /// The page: a single file without dependencies.
    pub fn html(&self) -> String {
        let title = clean(&self.runs[0].1.head.name);
        let several = self.runs.len() > 1;
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (title) " - throughline lab" }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (title) }
                    p { (self.headline()) }
                    @for compared in &self.compared { (changes(compared)) }
                    (pictures::samples(&self.series()))
                    (pictures::latencies(&self.runs))
                    @for (name, record) in &self.runs { (run(several.then_some(name), record)) }
                }
            }
        };
        page.into_string()
    }

    /// The samples of all runs.
    fn series(&self) -> Vec<Series> {
        let mut all = Vec::new();
        for (run, record) in &self.runs {
            for column in record.columns() {
                all.push(Series {
                    name: match self.runs.len() {
                        1 => clean(&column.series),
                        _ => format!("{} ({})", clean(&column.series), clean(run)),
                    },
                    quantity: clean(&format!("{}, {}", column.quantity, column.unit)),
                    samples: column.samples,
                });
            }
        }
        all
    }
}

/// A comparison: its intervals, and its table.
fn changes(compared: &Result<Comparison>) -> Markup {
    let compared = match compared {
        Err(error) => return html! { p { "Not compared: " (clean(&error.to_string())) } },
        Ok(compared) => compared,
    };
    let interval = |row: &crate::compare::Row| Interval {
        name: format!("{} of {}", clean(&row.quantity), clean(&row.new.series)),
        value: row.judgement.ratio,
        ends: (row.judgement.low, row.judgement.high),
    };
    let intervals: Vec<Interval> = compared.rows.iter().map(interval).collect();
    html! {
        (pictures::intervals("new / base", &intervals))
        pre { (clean(&compared.to_string())) }
    }
}

/// One run: its ratios, its table, its settings, and what the I/O path did.
fn run(name: Option<&String>, record: &Record) -> Markup {
    let ratio = |line: &Line| match line {
        Line::Ratio { name, ratio } => Some(Interval {
            name: clean(name),
            value: ratio.value,
            ends: (ratio.low, ratio.high),
        }),
        _ => None,
    };
    let ratios: Vec<Interval> = record.lines.iter().filter_map(ratio).collect();
    let accounts = record.accounts();
    html! {
        @if let Some(name) = name { h2 { (clean(name)) } }
        (pictures::intervals("Ratios", &ratios))
        pre { (clean(&Table(record).to_string())) }
        @if !record.is_whole() { p { "The run was killed: only the samples taken before are there." } }
        (pictures::traces(record))
        @if !accounts.is_empty() {
            h3 { "Account of the path" }
            pre { (clean(&table(&accounts, false))) }
        }
        h3 { "How it was run" }
        pre {
            "started: " (clean(&record.head.started)) "\n"
            @for (name, value) in &record.head.settings {
                (clean(name)) ": " (clean(value.as_str().unwrap_or(&value.to_string()))) "\n"
            }
        }
    }
}

/// A text from a file: control characters and text direction marks become spaces.
fn clean(text: &str) -> String {
    let strange = |c: char| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars()
        .map(|c| if strange(c) { ' ' } else { c })
        .collect()
}
