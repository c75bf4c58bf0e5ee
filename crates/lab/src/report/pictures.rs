//! The pictures of a page: samples, intervals of ratios, latencies, and bios over time.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::clean;
use super::svg::{LINE, Scale, WIDTH, colour, dot, name, picture, stroke};
use crate::record::{Line, Record, TraceEvent};
use crate::stats::{quantile, sorted};

/// The samples that are drawn of a series, the bios of a trace, and the steps of a curve.
const MAX_SAMPLES: usize = 400;
const MAX_BIOS: usize = 250;
const MAX_STEPS: usize = 200;
/// The pictures of samples, and the rows of a picture.
const MAX_PICTURES: usize = 40;
const MAX_ROWS: usize = 100;

/// The samples of one quantity in one series, by round.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) quantity: String,
    pub(super) samples: Vec<(u32, f64)>,
}

/// A ratio and its confidence interval.
pub(super) struct Interval {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) ends: (f64, f64),
}

/// A picture for each quantity: in the row of a series, a dot for each sample, the first round above; and
/// a line at the median.
pub(super) fn samples(all: &[Series]) -> Markup {
    let mut quantities: BTreeMap<&str, Vec<&Series>> = BTreeMap::new();
    for series in all {
        quantities.entry(&series.quantity).or_default().push(series);
    }
    html! {
        @for (quantity, rows) in quantities.iter().take(MAX_PICTURES) {
            (samples_of(quantity, &rows[..rows.len().min(MAX_ROWS)]))
        }
    }
}

fn samples_of(quantity: &str, rows: &[&Series]) -> Markup {
    const ROW: f64 = 2.0 * LINE;
    let values = rows
        .iter()
        .flat_map(|row| row.samples.iter().map(|(_, value)| *value));
    let Some(scale) = Scale::of(values) else {
        return html! {};
    };
    let row = |(number, row): (usize, &&Series)| {
        let top = number as f64 * ROW;
        let finite: Vec<f64> = row
            .samples
            .iter()
            .map(|one| one.1)
            .filter(|v| v.is_finite())
            .collect();
        let median = (!finite.is_empty()).then(|| scale.x(quantile(&sorted(&finite), 0.5)));
        let every = row.samples.len().div_ceil(MAX_SAMPLES).max(1);
        let last = row.samples.len().max(2) - 1;
        let dots = row.samples.iter().enumerate().step_by(every);
        let dots = dots.filter(|(_, (_, value))| value.is_finite());
        html! {
            (name(top + ROW / 2.0 + 4.0, &row.name, colour(number)))
            @for (at, (_, value)) in dots {
                (dot(scale.x(*value), top + 4.0 + at as f64 / last as f64 * (ROW - 8.0), 2.0, colour(number)))
            }
            @if let Some(x) = median { (stroke((x, top + 2.0), (x, top + ROW - 2.0), 2.0, "currentColor")) }
        }
    };
    let marks = html! { @for one in rows.iter().enumerate() { (row(one)) } };
    picture(quantity, &scale, rows.len() as f64 * ROW, &marks)
}

/// Ratios with their intervals, and a line at 1.
pub(super) fn intervals(title: &str, all: &[Interval]) -> Markup {
    let all = &all[..all.len().min(MAX_ROWS)];
    let values = all
        .iter()
        .flat_map(|one| [one.value, one.ends.0, one.ends.1]);
    let Some(scale) = Scale::of(values.chain((!all.is_empty()).then_some(1.0))) else {
        return html! {};
    };
    let height = all.len() as f64 * LINE;
    let row = |(number, one): (usize, &Interval)| {
        let y = (number as f64 + 0.5) * LINE;
        let (low, high) = one.ends;
        html! {
            (name(y + 4.0, &one.name, "currentColor"))
            @if !low.is_nan() && !high.is_nan() {
                (stroke((scale.x(low), y), (scale.x(high), y), 2.0, colour(0)))
            }
            @if one.value.is_finite() { (dot(scale.x(one.value), y, 4.0, colour(0))) }
        }
    };
    let marks = html! {
        (stroke((scale.x(1.0), 0.0), (scale.x(1.0), height), 1.0, "currentColor"))
        @for one in all.iter().enumerate() { (row(one)) }
    };
    picture(title, &scale, height, &marks)
}

/// A picture for each kind of operation: to the right the latency, as a power of ten; upwards the share of
/// the operations that took longer, 1, 0.1, 0.01 and so on.
pub(super) fn latencies(runs: &[(String, Record)]) -> Markup {
    type Classes = Vec<(f64, u64)>;
    let mut all: BTreeMap<&str, BTreeMap<(&str, &str), Classes>> = BTreeMap::new();
    for (run, record) in runs {
        for line in &record.lines {
            if let Line::Latencies(times) = line
                && times.round > 0
            {
                let series = all.entry(&times.quantity).or_default();
                let classes = series.entry((run, &times.series)).or_default();
                classes.extend(
                    times
                        .classes_us
                        .iter()
                        .filter(|class| class.0 > 0.0 && class.1 > 0),
                );
            }
        }
    }
    let curve = |((run, series), classes): (&(&str, &str), &Classes)| {
        let name = match runs.len() {
            1 => clean(series),
            _ => format!("{} ({})", clean(series), clean(run)),
        };
        (name, steps(classes.clone()))
    };
    html! {
        @for (quantity, series) in all.iter().take(MAX_PICTURES) {
            (curves(&clean(quantity), &series.iter().take(MAX_ROWS).map(curve).collect::<Vec<_>>()))
        }
    }
}

/// The logarithms of the latency in microseconds, and of the share of operations that took as long or longer.
fn steps(mut classes: Vec<(f64, u64)>) -> Vec<(f64, f64)> {
    classes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all = classes.iter().map(|class| class.1 as f64).sum::<f64>();
    let mut before = 0.0;
    let mut steps = Vec::new();
    for (us, count) in classes {
        steps.push((us.log10(), (1.0 - before / all).max(1e-9).log10()));
        before += count as f64;
    }
    let every = steps.len().div_ceil(MAX_STEPS).max(1);
    steps.into_iter().step_by(every).collect()
}

fn curves(quantity: &str, all: &[(String, Vec<(f64, f64)>)]) -> Markup {
    const DECADES: f64 = 5.0;
    let points = || all.iter().flat_map(|(_, steps)| steps);
    let Some(scale) = Scale::of(points().map(|step| step.0)) else {
        return html! {};
    };
    let height = (all.len() as f64 * LINE).max(10.0 * LINE);
    let y = |share: f64| (height - 4.0) * (1.0 + share / DECADES).max(0.0) + 2.0;
    let marks = html! {
        @for (number, (series, steps)) in all.iter().enumerate() {
            (name((number as f64 + 0.8) * LINE, series, colour(number)))
            @for two in steps.windows(2) {
                @let (from, to) = (two[0], two[1]);
                (stroke((scale.x(from.0), y(from.1)), (scale.x(to.0), y(to.1)), 1.5, colour(number)))
            }
        }
    };
    let title =
        format!("{quantity}: how many took longer, from none to all; log10 of microseconds");
    picture(&title, &scale, height, &marks)
}

/// The first bios of each trace: a row each, thin while it was built, thick from submission to completion.
pub(super) fn traces(record: &Record) -> Markup {
    let trace = |line: &Line| match line {
        Line::Trace { series, events } => Some((clean(series), bios(events))),
        _ => None,
    };
    let all = record.lines.iter().filter_map(trace).take(MAX_PICTURES);
    html! { @for (series, bios) in all { (pipeline(&series, &bios)) } }
}

/// When a bio was begun, submitted and completed, in microseconds.
struct Bio {
    begun: f64,
    submitted: f64,
    completed: Option<f64>,
}

/// Events of one bio have the same offset. Of several with the same offset, the oldest completes first.
fn bios(events: &[TraceEvent]) -> Vec<Bio> {
    let mut begun: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut on_device: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut bios: Vec<Bio> = Vec::new();
    for event in events.iter().filter(|event| event.at_us.is_finite()) {
        let at = event.offset_bytes;
        let first = |waiting: &mut Vec<usize>| (!waiting.is_empty()).then(|| waiting.remove(0));
        match event.what.as_str() {
            "build" => begun.entry(at).or_default().push(event.at_us),
            "submit" if bios.len() < MAX_BIOS => {
                let begun = begun.get_mut(&at).and_then(Vec::pop);
                on_device.entry(at).or_default().push(bios.len());
                bios.push(Bio {
                    begun: begun.unwrap_or(event.at_us),
                    submitted: event.at_us,
                    completed: None,
                });
            }
            "complete" => {
                if let Some(known) = on_device.get_mut(&at).and_then(first) {
                    bios[known].completed = Some(event.at_us);
                }
            }
            _ => {}
        }
    }
    bios
}

fn pipeline(series: &str, bios: &[Bio]) -> Markup {
    const ROW: f64 = 3.0;
    let times = bios
        .iter()
        .flat_map(|bio| [Some(bio.begun), Some(bio.submitted), bio.completed]);
    let Some(scale) = Scale::of(times.flatten()) else {
        return html! {};
    };
    let marks = html! {
        @for (number, bio) in bios.iter().enumerate() {
            @let (y, submitted) = ((number as f64 + 0.5) * ROW, scale.x(bio.submitted));
            (stroke((scale.x(bio.begun), y), (submitted, y), 0.5, "currentColor"))
            (stroke((submitted, y), (bio.completed.map_or(WIDTH, |at| scale.x(at)), y), ROW - 1.0, colour(0)))
        }
    };
    let title = format!("{series}: bios over time, microseconds");
    picture(&title, &scale, bios.len() as f64 * ROW, &marks)
}
