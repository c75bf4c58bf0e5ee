//! A [`Record`] as a table in text form.

use std::fmt;

use super::{Line, Record};
use crate::stats::Summary;

/// The table of a record.
pub struct Table<'a>(pub &'a Record);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.0;
        writeln!(f, "{}  ({})", record.head.name, record.head.machine)?;
        for column in record.columns() {
            let s = Summary::of(&column.values());
            writeln!(
                f,
                "  {:<28} {:<22} {:>12.3} {:<8} n={:<3} median={:.3} range=[{:.3},{:.3}] stdev={:.3} \
                 cv={:.2}%",
                column.series,
                column.quantity,
                s.mean,
                column.unit,
                s.count,
                s.median,
                s.min,
                s.max,
                s.stdev,
                s.cv_percent
            )?;
        }
        for line in &record.lines {
            match line {
                Line::Ratio { name, ratio: r } => {
                    let (value, low, high) = (r.value, r.low, r.high);
                    writeln!(f, "  ratio {name:<45} {value:>8.3}  [{low:.3}, {high:.3}]")?;
                }
                Line::Count { name, value } => writeln!(f, "  count {name:<45} {value:>12.2}")?,
                Line::Bar(bar) => {
                    let sign = if bar.at_least { "≥" } else { "≤" };
                    let verdict = if bar.met { "met" } else { "NOT MET" };
                    writeln!(
                        f,
                        "  bar   {:<45} {:>12.3} {sign} {:<8} {verdict}",
                        bar.name, bar.value, bar.target
                    )?;
                }
                Line::Note { text } => writeln!(f, "  note  {text}")?,
                Line::End { why } if why != "rounds" => writeln!(f, "  end   {why}")?,
                _ => {}
            }
        }
        Ok(())
    }
}
