//! The data drawn by the page's script: everything in plots, as JSON that cannot close its element.

use serde::Serialize;

use crate::record::Line;
use crate::stats::Verdict;

use super::samples::Quantity;
use super::text::{one_line, short};
use super::{Entity, Report, latency, trace};

/// All plots of a page.
#[derive(Serialize)]
struct Data<'a> {
    entities: &'a [Entity],
    quantities: &'a [Quantity],
    forests: Vec<Forest>,
    latencies: &'a [latency::Plot],
    traces: &'a [trace::Trace],
}

/// Ratios with their intervals.
#[derive(Serialize)]
pub(super) struct Forest {
    #[serde(skip)]
    pub(super) title: String,
    /// Whether the axis shows changes in percent instead of ratios.
    pub(super) percent: bool,
    rows: Vec<ForestRow>,
}

#[derive(Serialize)]
struct ForestRow {
    label: String,
    value: f64,
    low: f64,
    high: f64,
    /// Its colour: `good`, `bad`, `open` or empty.
    tone: &'static str,
    /// The text next to it.
    text: String,
}

/// The page's data as JSON. It contains no `<`, so no name can close the element.
pub(super) fn json(report: &Report) -> String {
    let data = Data {
        entities: &report.entities,
        quantities: &report.quantities,
        forests: forests(report),
        latencies: &report.latencies,
        traces: &report.traces,
    };
    // There are only numbers, strings, lists and maps with string keys, so serialisation cannot fail.
    let text = serde_json::to_string(&data).unwrap_or_default();
    text.replace('<', "\\u003c")
}

/// The comparisons first, then the runs' own ratios.
pub(super) fn forests(report: &Report) -> Vec<Forest> {
    let mut forests = Vec::new();
    if !report.comparisons.is_empty() {
        let bases = &report.sources[0].label;
        forests.push(Forest {
            title: format!("Change against '{bases}'"),
            percent: true,
            rows: compared(report),
        });
    }
    for source in &report.sources {
        let rows: Vec<ForestRow> = source.record.lines.iter().filter_map(ratio).collect();
        if rows.is_empty() {
            continue;
        }
        let title = match report.sources.len() {
            1 => "Ratios".to_owned(),
            _ => format!("Ratios in '{}'", source.label),
        };
        forests.push(Forest {
            title,
            percent: false,
            rows,
        });
    }
    forests
}

fn compared(report: &Report) -> Vec<ForestRow> {
    let several = report.sources.len() > 2;
    let row = |c: &super::Compared| {
        let file = if several {
            format!(" ({})", c.new)
        } else {
            String::new()
        };
        let found = &c.judgement;
        ForestRow {
            label: format!("{}, {}{file}", c.series, c.quantity),
            value: found.ratio,
            low: found.low,
            high: found.high,
            tone: match found.verdict {
                Verdict::Faster => "good",
                Verdict::Slower => "bad",
                Verdict::NotEnough => "open",
                Verdict::NoDifference => "",
            },
            text: format!("{}: {}", c.word(), c.change()),
        }
    };
    report.comparisons.iter().map(row).collect()
}

fn ratio(line: &Line) -> Option<ForestRow> {
    let Line::Ratio { name, ratio } = line else {
        return None;
    };
    Some(ForestRow {
        label: one_line(name),
        value: ratio.value,
        low: ratio.low,
        high: ratio.high,
        tone: "",
        text: format!(
            "{} [{}, {}]",
            short(ratio.value),
            short(ratio.low),
            short(ratio.high)
        ),
    })
}
