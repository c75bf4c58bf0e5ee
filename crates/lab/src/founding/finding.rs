//! [`Finding`]: the table of one report, filled from a run's record.

use std::fmt;

use serde::Serialize;
use throughline_explain::text::aligned;

use super::reports::{From, Report, Row};
use crate::record::{self, Bar, Better, Column, Ratio, Record};
use crate::stats::{self, Summary};

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The target and the quantity.
    pub what: &'static str,
    /// The unit of the figures; empty for plain numbers.
    pub unit: String,
    /// The mean of the report's old way, or of the planted fault.
    pub old_way: Option<f64>,
    /// The mean of our engine.
    pub ours: Option<f64>,
    /// The mean of the kernel.
    pub kernel: Option<f64>,
    /// Ours over the old way.
    pub ours_over_old: Option<Ratio>,
    /// Ours over the kernel.
    pub ours_over_kernel: Option<Ratio>,
}

/// The results for one report. `Display` is the text for people.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The report's number.
    pub report: u8,
    /// Its subject.
    pub title: &'static str,
    /// Its experiment.
    pub experiment: &'static str,
    /// Its own figures.
    pub claimed: &'static [&'static str],
    /// What the kernel column shows.
    pub kernel: &'static str,
    /// The table; lines without measurements are left out.
    pub lines: Vec<Line>,
    /// The project's limits, and whether they were met.
    pub bars: Vec<Bar>,
    /// Notes that the reader needs to interpret the figures.
    pub notes: Vec<String>,
}

impl Finding {
    /// The finding from `record`, a run of the report's experiment.
    pub fn of(report: &Report, record: &Record) -> Finding {
        let mut columns = record.columns();
        columns.extend(record.lines.iter().filter_map(count));
        let lines = report.rows.iter().filter_map(|row| line(row, &columns));
        let bars = record.lines.iter().filter_map(|line| match line {
            record::Line::Bar(bar) => Some(bar.clone()),
            _ => None,
        });
        let notes = record.lines.iter().filter_map(|line| match line {
            record::Line::Note { text } => Some(text.clone()),
            _ => None,
        });
        Finding {
            report: report.number,
            title: report.title,
            experiment: report.experiment,
            claimed: report.claimed,
            kernel: report.kernel,
            lines: lines.collect(),
            bars: bars.collect(),
            notes: notes.collect(),
        }
    }

    /// The number of limits met, and of all limits.
    pub fn bars_met(&self) -> (usize, usize) {
        let met = self.bars.iter().filter(|bar| bar.met).count();
        (met, self.bars.len())
    }
}

/// A count, as a single sample.
fn count(line: &record::Line) -> Option<Column> {
    let record::Line::Count { name, value } = line else {
        return None;
    };
    Some(Column {
        series: name.clone(),
        quantity: String::new(),
        unit: String::new(),
        better: Better::Higher,
        samples: vec![(1, *value)],
    })
}

fn line(row: &Row, columns: &[Column]) -> Option<Line> {
    let (quantity, unit) = match row.from {
        From::Samples(quantity) => (quantity, None),
        From::Counts(unit) => ("", Some(unit)),
    };
    let names = row.columns();
    let column = |name: &Option<String>| {
        let is_it = |one: &&Column| Some(&one.series) == name.as_ref() && one.quantity == quantity;
        columns.iter().find(is_it)
    };
    let [old, ours, kernel] = names.each_ref().map(column);
    let any = ours.or(old).or(kernel)?;
    let mean = |column: &Column| Summary::of(&column.values()).mean;
    Some(Line {
        what: row.what,
        unit: unit.unwrap_or(&any.unit).to_owned(),
        old_way: old.map(mean),
        ours: ours.map(mean),
        kernel: kernel.map(mean),
        ours_over_old: ratio(ours, old),
        ours_over_kernel: ratio(ours, kernel),
    })
}

fn ratio(over: Option<&Column>, under: Option<&Column>) -> Option<Ratio> {
    let (over, under) = over?.paired(under?);
    stats::ratio(&over, &under)
}

/// A ratio, with its interval if there is one.
fn shown(ratio: Option<Ratio>) -> String {
    let Some(r) = ratio else {
        return "-".into();
    };
    let digits = if r.value < 0.1 { 3 } else { 2 };
    let of = |value: f64| format!("{value:.digits$}");
    match r.low == r.high {
        true => of(r.value),
        false => format!("{} [{}, {}]", of(r.value), of(r.low), of(r.high)),
    }
}

/// At least three significant digits, and no meaningless ones after the point.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value.abs() >= 1000.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.3}"),
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "report {}: {}", self.report, self.title)?;
        for claim in self.claimed {
            writeln!(f, "  claimed  {claim}")?;
        }
        writeln!(f, "  kernel   {}", self.kernel)?;
        let name = |line: &Line| match line.unit.as_str() {
            "" => line.what.to_owned(),
            unit => format!("{}, {unit}", line.what),
        };
        let head = [
            "",
            "old way",
            "ours",
            "kernel",
            "ours / old way",
            "ours / kernel",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.lines.iter().map(|line| {
            vec![
                name(line),
                figure(line.old_way),
                figure(line.ours),
                figure(line.kernel),
                shown(line.ours_over_old),
                shown(line.ours_over_kernel),
            ]
        }));
        for line in aligned(&rows, 1..4) {
            writeln!(f, "  {line}")?;
        }
        let (met, all) = self.bars_met();
        writeln!(f, "  {met} of {all} limits met")?;
        for bar in &self.bars {
            let sign = if bar.at_least { ">=" } else { "<=" };
            let verdict = if bar.met { "met    " } else { "NOT MET" };
            writeln!(
                f,
                "    {verdict}  {:.3} {sign} {}  {}",
                bar.value, bar.target, bar.name
            )?;
        }
        self.notes
            .iter()
            .try_for_each(|note| writeln!(f, "  note  {note}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::REPORTS;
    use super::*;
    use crate::outcome::Outcome;

    fn recorded(outcome: Outcome) -> Record {
        outcome.into_record("a report", "2026-01-02T03:04:05Z", BTreeMap::new())
    }

    #[test]
    fn a_recorded_run_is_summarised_report_by_report() {
        let mut outcome = Outcome::default();
        let phone = "phone model, 32 MiB read";
        for (name, quantity, unit, samples) in [
            (
                "32 MiB read: whole request",
                "throughput",
                "MB/s",
                [900.0, 1100.0],
            ),
            ("32 MiB read: ours", "throughput", "MB/s", [1800.0, 2200.0]),
            (
                "32 MiB read: kernel O_DIRECT",
                "throughput",
                "MB/s",
                [1800.0, 2200.0],
            ),
            (
                &format!("{phone}: whole request"),
                "first submit",
                "us",
                [2000.0; 2],
            ),
            (&format!("{phone}: ours"), "first submit", "us", [50.0; 2]),
        ] {
            for value in samples {
                outcome.sample(name, (quantity, unit, value));
            }
        }
        outcome.at_least("a limit that was reached", 2.0, 1.05);
        outcome.at_most("one that was not", 3.0, 1.0);
        outcome.note("something was left out");
        let finding = Finding::of(&REPORTS[3], &recorded(outcome));
        assert_eq!(finding.bars_met(), (1, 2));
        let expected = "\
report 4: a large direct read gathered into one bio before anything is submitted
  claimed  first submit 2 ms -> 100 us; 32 MiB in 19 -> 17 ms
  claimed  512 MB read at 1900 -> 2000 MB/s (x 1.05)
  kernel   the kernel's O_DIRECT with the same call on the same file
                                     old way  ours  kernel  ours / old way  ours / kernel
  disk, 32 MiB read, MB/s               1000  2000    2000  2.00            1.00
  model ufs-phone, first submit, us     2000  50.0       -  0.025           -
  1 of 2 limits met
    met      2.000 >= 1.05  a limit that was reached
    NOT MET  3.000 <= 1  one that was not
  note  something was left out
";
        assert_eq!(finding.to_string(), expected);
    }

    #[test]
    fn counts_of_a_model_are_shown_with_the_measured_ones() {
        let mut outcome = Outcome::default();
        outcome.sample("raw, none (ours), 1 threads", ("rate", "kIOPS", 2000.0));
        for (name, value) in [("one shared counter", 10_000.0), ("no count", 64_000.0)] {
            outcome.count(format!("model,  32 cores: {name}, kIOPS"), value);
        }
        let finding = Finding::of(&REPORTS[1], &recorded(outcome));
        assert_eq!(finding.lines.len(), 2, "what was not measured is left out");
        let [measured, modelled] = [&finding.lines[0], &finding.lines[1]];
        assert_eq!(measured.old_way, None);
        assert_eq!(measured.ours, Some(2000.0));
        assert_eq!(modelled.unit, "kIOPS");
        assert_eq!(shown(modelled.ours_over_old), "6.40");
    }

    #[test]
    fn every_report_has_an_experiment() {
        for (number, report) in REPORTS.iter().enumerate() {
            assert_eq!(usize::from(report.number), number + 1);
            let experiment = report.experiment().expect("it is there");
            assert_eq!(experiment.name, format!("founding/{}", report.number));
        }
    }
}
