//! A mail to a mailing list, in Markdown that also reads as plain text, in the format of the five reports.
//!
//! Invariants: no line is longer than [`COLUMNS`], unless a single word is. Figures are in indented blocks,
//! where nothing is markup. Names in sentences are escaped.

use std::fmt::Write as _;

use crate::record::{Better, Line};

use super::latency::PERCENTILES;
use super::samples::Quantity;
use super::text::{one_line, short};
use super::verdict::sentence;
use super::{Report, Source};

/// The width of a mail.
const COLUMNS: usize = 78;
/// The prefix of a verbatim line.
const BLOCK: &str = "    ";

/// The whole mail.
pub(super) fn mail(report: &Report) -> String {
    let mut mail = Mail::default();
    mail.heading(&report.title());
    mail.words(&report.headline.sentence);
    mail.words(&report.headline.more.join(" "));
    let facts = report.warnings.iter().cloned().chain(report.notes());
    facts.for_each(|fact| mail.item(&fact));
    mail.gap();
    for source in &report.sources {
        mail.words(&match report.sources.len() {
            1 => "Test environment:".to_owned(),
            _ => format!("Test environment of '{}':", source.label),
        });
        circumstances(source)
            .iter()
            .for_each(|line| mail.shown(line));
        mail.gap();
    }
    if !report.quantities.is_empty() {
        mail.words("Results:");
    }
    for quantity in &report.quantities {
        measured(&mut mail, report, quantity);
    }
    changes(&mut mail, report);
    latencies(&mut mail, report);
    accounts(&mut mail, report);
    others(&mut mail, report);
    format!("{}\n", mail.text.trim_end())
}

/// The machine, the kernel, the command and the settings, one per line.
pub(super) fn circumstances(source: &Source) -> Vec<String> {
    let head = &source.record.head;
    let machine = &head.machine;
    let build = if machine.optimised {
        ""
    } else {
        " (DEBUG BUILD)"
    };
    let mut lines = vec![
        format!("what:    {}", one_line(&head.name)),
        format!(
            "machine: {} x {}, {} MiB",
            machine.cpus,
            one_line(&machine.cpu),
            machine.memory_mib
        ),
        format!("kernel:  Linux {}", one_line(&machine.kernel)),
        format!("program: throughline {}{build}", one_line(&machine.version)),
        format!("started: {}", one_line(&head.started)),
    ];
    if let Some(Line::End { why }) = source.record.lines.last() {
        lines.push(format!("ended:   {}", one_line(why)));
    }
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => one_line(text),
        other => one_line(&other.to_string()),
    };
    let setting = |(name, value): (&String, &serde_json::Value)| {
        format!("{}: {}", one_line(name), text(value))
    };
    lines.extend(head.settings.iter().map(setting));
    lines
}

fn measured(mail: &mut Mail, report: &Report, quantity: &Quantity) {
    let unit = match quantity.unit.is_empty() {
        true => String::new(),
        false => format!("{}, ", one_line(&quantity.unit)),
    };
    let good = match quantity.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    };
    mail.words(&format!("{} ({unit}{good}):", one_line(&quantity.name)));
    for row in &quantity.rows {
        mail.shown(&format!("{}:", report.entities[row.entity].label));
        mail.shown(&row.summary.to_string());
    }
    mail.gap();
}

fn changes(mail: &mut Mail, report: &Report) {
    if report.comparisons.is_empty() {
        return;
    }
    mail.heading("Relative change");
    for comparison in &report.comparisons {
        mail.item(&format!(
            "{} {}.",
            sentence(comparison),
            comparison.judgement
        ));
    }
    mail.gap();
}

fn latencies(mail: &mut Mail, report: &Report) {
    for latency in &report.latencies {
        mail.words(&format!("Latency of {}, us:", one_line(&latency.quantity)));
        for curve in &latency.curves {
            let names = PERCENTILES
                .iter()
                .map(|p| format!("p{p}"))
                .chain(["longest".to_owned()]);
            let each = names
                .zip(&curve.at)
                .map(|(name, us)| format!("{name}={}", short(*us)));
            let each: Vec<String> = each.collect();
            mail.shown(&format!("{}:", report.entities[curve.entity].label));
            mail.shown(&format!("count={} {}", curve.count, each.join(" ")));
        }
        mail.gap();
    }
}

/// Columns side by side do not fit into a mail. So accounts are numbered, and shown line by line below each
/// other.
fn accounts(mail: &mut Mail, report: &Report) {
    let accounts = &report.accounts;
    if accounts.entities.is_empty() {
        return;
    }
    let label = |entity: &usize| &report.entities[*entity].label;
    let alone = accounts.entities.len() == 1;
    match alone {
        true => mail.words(&format!("Account of {}:", label(&accounts.entities[0]))),
        false => {
            mail.words("Accounts:");
            for (number, entity) in accounts.entities.iter().enumerate() {
                mail.shown(&format!("({}) {}", number + 1, label(entity)));
            }
            mail.gap();
        }
    }
    for section in &accounts.sections {
        mail.shown(section.name);
        for line in &section.lines {
            let name = one_line(&line.name);
            let texts = line.texts.iter().map(|text| text.as_deref().map(one_line));
            if alone {
                let text = texts.flatten().collect::<String>();
                mail.shown(&format!("  {name:<25} {text}"));
                continue;
            }
            mail.shown(&format!("  {name}"));
            for (number, text) in texts.enumerate() {
                let text = text.unwrap_or_else(|| "-".to_owned());
                mail.shown(&format!("    ({}) {text}", number + 1));
            }
        }
    }
    mail.gap();
}

/// Ratios, limits and counts of each run.
fn others(mail: &mut Mail, report: &Report) {
    for source in &report.sources {
        let lines: Vec<String> = source.record.lines.iter().filter_map(other).collect();
        if lines.is_empty() {
            continue;
        }
        mail.words(&match report.sources.len() {
            1 => "Ratios, limits and counts:".to_owned(),
            _ => format!("Ratios, limits and counts of '{}':", source.label),
        });
        lines.iter().for_each(|line| mail.shown(line));
        mail.gap();
    }
}

fn other(line: &Line) -> Option<String> {
    Some(match line {
        Line::Ratio { name, ratio } => format!(
            "{}: {} [{}, {}]",
            one_line(name),
            short(ratio.value),
            short(ratio.low),
            short(ratio.high)
        ),
        Line::Bar(bar) => format!(
            "{}: {}, limit {} {}: {}",
            one_line(&bar.name),
            short(bar.value),
            if bar.at_least { ">=" } else { "<=" },
            short(bar.target),
            if bar.met { "met" } else { "NOT MET" }
        ),
        Line::Count { name, value } => format!("{}: {}", one_line(name), short(*value)),
        _ => return None,
    })
}

/// The text being built.
#[derive(Default)]
struct Mail {
    text: String,
}

impl Mail {
    fn heading(&mut self, text: &str) {
        let text = escaped(text);
        let line = "-".repeat(text.chars().count().clamp(3, COLUMNS));
        let _ = writeln!(self.text, "{text}\n{line}\n");
    }

    /// A paragraph, if not empty.
    fn words(&mut self, text: &str) {
        if !text.is_empty() {
            self.wrapped(&escaped(text), "", "");
            self.gap();
        }
    }

    fn item(&mut self, text: &str) {
        self.wrapped(&escaped(&one_line(text)), "- ", "  ");
    }

    /// A verbatim line; continuation lines are indented.
    fn shown(&mut self, text: &str) {
        self.wrapped(text, BLOCK, "      ");
    }

    fn gap(&mut self) {
        if !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    fn wrapped(&mut self, text: &str, first: &str, next: &str) {
        let options = textwrap::Options::new(COLUMNS)
            .initial_indent(first)
            .subsequent_indent(next)
            .break_words(false);
        for line in textwrap::wrap(text, options) {
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }
}

/// Escapes Markdown markup within a sentence.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '<' | '`' | '*' | '[' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
