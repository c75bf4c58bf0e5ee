//! The text of the page: the answer first, then the plots, then all figures in tables.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::record::{Better, Line};

use super::latency::PERCENTILES;
use super::page::{forests, json};
use super::samples::{Quantity, Row};
use super::text::{figure, one_line, share, short};
use super::trace::Trace;
use super::verdict::Tone;
use super::{Report, Source};

const STYLE: &str = include_str!("assets/report.css");
/// The script, wrapped in a function so that it defines no global names.
const SCRIPT: &str = concat!(
    "(() => {\n\"use strict\";\n",
    include_str!("assets/draw.js"),
    include_str!("assets/samples.js"),
    include_str!("assets/trace.js"),
    include_str!("assets/page.js"),
    "})();\n"
);
/// A content security policy that forbids fetching, sending and framing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    base-uri 'none'; form-action 'none'";

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let title = report.title();
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
                header {
                    span { "throughline lab" }
                    button type="button" id="theme" { "Colours" }
                }
                main {
                    (hero(report, &title))
                    (changes(report))
                    (limits(report))
                    @for (index, quantity) in report.quantities.iter().enumerate() {
                        (measured(report, index, quantity))
                    }
                    (ratios(report))
                    (latencies(report))
                    (traces(report))
                    (accounts(report))
                    (counts(report))
                    (circumstances(report))
                }
                footer { "This page contains all of its data and makes no requests." }
                noscript { p { "The plots need JavaScript; the tables do not." } }
                script type="application/json" id="data" { (PreEscaped(json(report))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn tone(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Plain => "plain",
        Tone::Open => "open",
    }
}

fn plot(kind: &str, index: usize, caption: &str) -> Markup {
    html! {
        figure data-plot=(kind) {
            div.plot data-plot=(kind) data-index=(index) {}
            @if !caption.is_empty() { figcaption { (caption) } }
        }
    }
}

fn hero(report: &Report, title: &str) -> Markup {
    let warnings = &report.warnings;
    let notes = report.notes();
    html! {
        section.hero {
            h1 { (title) }
            p.verdict.(tone(report.headline.tone)) { (report.headline.sentence) }
            @for more in &report.headline.more { p.more { (more) } }
            @for (label, machine) in machines(report) { p.where {
                @if !label.is_empty() { (label) ": " } (machine)
            } }
            @if !warnings.is_empty() { ul.warnings {
                @for warning in warnings { li { (warning) } }
            } }
            @if !notes.is_empty() { details open[notes.len() < 5] {
                summary { "Notes of the run" }
                ul { @for note in &notes { li { (note) } } }
            } }
        }
    }
}

/// The machines of the files. If all ran on the same machine, a single entry without a name.
fn machines(report: &Report) -> Vec<(&str, String)> {
    let all = report.sources.iter().map(|source| {
        let machine = one_line(&source.record.head.machine.to_string());
        (source.label.as_str(), machine)
    });
    let all: Vec<(&str, String)> = all.collect();
    match all.iter().all(|(_, machine)| *machine == all[0].1) {
        true => vec![("", all[0].1.clone())],
        false => all,
    }
}

/// The comparison of several files.
fn changes(report: &Report) -> Markup {
    if report.comparisons.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Change against '" (report.sources[0].label) "'" }
            (plot("forest", 0, "The square is the measured change, the line its confidence interval."))
            div.scroll tabindex="0" { table {
                thead { tr {
                    th { "what" } th { "file" } th { "before" } th { "after" } th { "change [interval], %" }
                    th { "verdict" } th { "sure" } th { "detectable" }
                } }
                tbody { @for c in &report.comparisons { tr {
                    td title=(c.judgement) {
                        (c.series) ", " (c.quantity) @if !c.unit.is_empty() { " (" (c.unit) ")" }
                    }
                    td { (c.new) }
                    td { (figure(c.base_mean)) }
                    td { (figure(c.new_mean)) }
                    td { (c.change()) }
                    td { span.tone.(verdict_tone(c)) { (c.word()) } }
                    td { (short(c.judgement.confidence * 100.0)) " %" }
                    td {
                        @if c.judgement.smallest_seen_percent.is_finite() {
                            (share(c.judgement.smallest_seen_percent))
                        } @else { "nothing" }
                    }
                } } }
            } }
        }
    }
}

fn verdict_tone(c: &super::Compared) -> &'static str {
    use crate::stats::Verdict;
    match c.judgement.verdict {
        Verdict::Faster => "good",
        Verdict::Slower => "bad",
        Verdict::NoDifference => "plain",
        Verdict::NotEnough => "open",
    }
}

fn limits(report: &Report) -> Markup {
    let bars = |source: &Source| {
        super::verdict::bars(&source.record)
            .cloned()
            .collect::<Vec<_>>()
    };
    if report.sources.iter().all(|source| bars(source).is_empty()) {
        return html! {};
    }
    html! {
        section {
            h2 { "Limits" }
            @for source in &report.sources {
                @if report.sources.len() > 1 && !bars(source).is_empty() { h3 { (source.label) } }
                div.scroll tabindex="0" { table {
                    tbody { @for bar in bars(source) { tr {
                        td { (one_line(&bar.name)) }
                        td { (short(bar.value)) }
                        td { @if bar.at_least { "at least " } @else { "at most " } (short(bar.target)) }
                        td { @if bar.met { span.tone.good { "met" } } @else { span.tone.bad { "not met" } } }
                    } } }
                } }
            }
        }
    }
}

/// Buttons for the series of a section. The script creates them, because without it nothing can be hidden.
fn legend(entities: impl Iterator<Item = usize>) -> Markup {
    let mut numbers: Vec<usize> = entities.collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.len() < 2 {
        return html! {};
    }
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    html! { div.legend data-legend=(numbers.join(" ")) {} }
}

fn measured(report: &Report, index: usize, quantity: &Quantity) -> Markup {
    let good = match quantity.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    };
    let several = quantity.rows.iter().any(|row| row.summary.count > 1);
    let warming = quantity.rows.iter().any(|row| row.warming > 0);
    let explained = match index {
        0 => {
            "Each dot is a sample. The box spans the middle half, the thick line is the median, a ring is \
             an outlier (included)."
        }
        _ => "",
    };
    let shaded = match (
        quantity.rows.iter().any(|row| !row.warm_up.is_empty()),
        warming,
    ) {
        (true, _) => "Shaded: the warm-up, not included.",
        (false, true) => "Shaded: looks like a warm-up, but is included.",
        (false, false) => "",
    };
    html! {
        section {
            h2 {
                (one_line(&quantity.name)) " "
                small { (one_line(&quantity.unit)) @if !quantity.unit.is_empty() { ", " } (good) }
            }
            (legend(quantity.rows.iter().map(|row| row.entity)))
            div.side {
                (plot("strip", index, explained))
                @if several { (plot("time", index, shaded)) }
            }
            div.scroll tabindex="0" { table {
                thead { tr {
                    th { "series" } th { "samples" } th { "mean" } th { "median" } th { "range" }
                    th { "stdev" } th { "cv" } th { "outliers" } @if warming { th { "warming up" } }
                } }
                tbody { @for row in &quantity.rows { (summary_row(report, row, warming)) } }
            } }
        }
    }
}

fn summary_row(report: &Report, row: &Row, warming: bool) -> Markup {
    let summary = &row.summary;
    html! {
        tr {
            td { (report.entities[row.entity].label) }
            td { (summary.count) }
            td { (figure(summary.mean)) }
            td { (figure(summary.median)) }
            td { "[" (figure(summary.min)) ", " (figure(summary.max)) "]" }
            td { (figure(summary.stdev)) }
            td { (format!("{:.2}", summary.cv_percent)) " %" }
            td { (row.outliers_in_all) }
            @if warming { td { @if row.warming > 0 { "first " (row.warming) } } }
        }
    }
}

fn ratios(report: &Report) -> Markup {
    let first = usize::from(!report.comparisons.is_empty());
    html! {
        @for (index, forest) in forests(report).iter().enumerate().skip(first) {
            section { h2 { (forest.title) } (plot("forest", index, "")) }
        }
    }
}

fn latencies(report: &Report) -> Markup {
    html! {
        @for (index, latency) in report.latencies.iter().enumerate() {
            section {
                h2 { "Latency: " (one_line(&latency.quantity)) " " small { "us, less is better" } }
                (legend(latency.curves.iter().map(|curve| curve.entity)))
                (plot("latency", index, "The longest time of this percentage of the operations."))
                div.scroll tabindex="0" { table {
                    thead { tr {
                        th { "series" } th { "operations" }
                        @for p in PERCENTILES { th { "p" (p) } } th { "longest" }
                    } }
                    tbody { @for curve in &latency.curves { tr {
                        td { (report.entities[curve.entity].label) }
                        td { (curve.count) }
                        @for us in &curve.at { td { (figure(*us)) } }
                    } } }
                } }
            }
        }
    }
}

fn traces(report: &Report) -> Markup {
    if report.traces.is_empty() {
        return html! {};
    }
    let name = |trace: &Trace| &report.entities[trace.entity].label;
    let kind = |heading: &str, kind: &str, caption: &str, wanted: fn(&Trace) -> bool| {
        html! {
            @if report.traces.iter().any(wanted) {
                h3 { (heading) }
                @if !caption.is_empty() { p.hint { (caption) } }
                div.side {
                    @for (index, trace) in report.traces.iter().enumerate().filter(|(_, t)| wanted(t)) {
                        div { p.who { (name(trace)) } (plot(kind, index, "")) }
                    }
                }
            }
        }
    };
    html! {
        section {
            h2 { "The I/O path" }
            (kind("Pipeline of bios", "pipeline",
                "A row for each bio: thin while it was built, thick from submission to completion.",
                |t| !t.bios.is_empty()))
            (kind("Queue depth", "depth", "", |t| !t.depth.is_empty()))
            (kind("Pauses and commits", "pauses", "Round: a writer paused. Square: the journal committed.",
                |t| !t.pauses.is_empty() || !t.commits.is_empty()))
            (kind("Bio sizes", "sizes", "", |t| !t.sizes.is_empty()))
        }
    }
}

/// The full contents of the accounts, side by side.
fn accounts(report: &Report) -> Markup {
    let accounts = &report.accounts;
    if accounts.entities.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Account of the path" }
            p.hint { "Of the whole command, from the program down to the device." }
            div.scroll tabindex="0" { table {
                thead { tr {
                    th { "" }
                    @for entity in &accounts.entities { th { (report.entities[*entity].label) } }
                } }
                @for section in &accounts.sections { tbody {
                    tr { th colspan=(1 + accounts.entities.len()) scope="rowgroup" { (section.name) } }
                    @for line in &section.lines { tr {
                        td { (one_line(&line.name)) }
                        @for text in &line.texts { td { (text.as_deref().map_or("-".to_owned(), one_line)) } }
                    } }
                } }
            } }
        }
    }
}

fn counts(report: &Report) -> Markup {
    let counts = |source: &Source| {
        let count = |line: &Line| match line {
            Line::Count { name, value } => Some((one_line(name), *value)),
            _ => None,
        };
        source
            .record
            .lines
            .iter()
            .filter_map(count)
            .collect::<Vec<_>>()
    };
    html! {
        @for source in &report.sources {
            @let counts = counts(source);
            @if !counts.is_empty() { section {
                h2 { "Counts" @if report.sources.len() > 1 { " in '" (source.label) "'" } }
                div.scroll tabindex="0" { table { tbody { @for (name, value) in &counts { tr {
                    td { (name) } td { (short(*value)) }
                } } } } }
            } }
        }
    }
}

/// The machine, the kernel and the settings, for repeating the run.
fn circumstances(report: &Report) -> Markup {
    html! {
        section {
            h2 { "How it was run" }
            div.side { @for source in &report.sources { div {
                h3 { (source.label) }
                pre { (super::markdown::circumstances(source).join("\n")) }
            } } }
        }
    }
}
