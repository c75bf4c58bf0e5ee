//! The table of a [`Comparison`], in the format of report 5.

use std::fmt;

use super::{Comparison, Row, Side};
use crate::record::Better;
use crate::stats::trimmed;

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = |name: &str, source: &super::Source| {
            format!(
                "{name}: {} ({}, {}; {})",
                source.name, source.head.name, source.head.started, source.head.machine
            )
        };
        let (base, new) = match self.new.is_empty() {
            true => ("run", ""),
            false => ("base", "new"),
        };
        let named = |name, sources: &[super::Source]| -> Vec<String> {
            sources.iter().map(|one| source(name, one)).collect()
        };
        for line in named(base, &self.base).iter().chain(&named(new, &self.new)) {
            writeln!(f, "{line}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        if self.rows.len() > 1 {
            writeln!(
                f,
                "note: {} comparisons, {} % confidence for all together",
                self.rows.len(),
                trimmed(100.0 * self.confidence, 4)
            )?;
        }
        self.rows.iter().try_for_each(|row| self.show(row, f))
    }
}

impl Comparison {
    fn show(&self, row: &Row, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let better = match row.judgement.better {
            Better::Higher => "higher",
            Better::Lower => "lower",
        };
        let unit = match row.unit.as_str() {
            "" => String::new(),
            unit => format!(" ({unit})"),
        };
        writeln!(f, "\n{}{unit}, {better} is better", row.quantity)?;
        let label = |place: &str, side: &Side| match self.new.is_empty() {
            false => format!("{place} {}", side.series),
            true => side.series.clone(),
        };
        let names = [label("base", &row.base), label("new", &row.new)];
        let width = names
            .iter()
            .map(|name| name.chars().count())
            .max()
            .unwrap_or(0);
        for (name, side) in names.iter().zip([&row.base, &row.new]) {
            writeln!(f, "  {name:<width$} : {}", side.summary)?;
        }
        let found = &row.judgement;
        let ratio = match found.has_interval() {
            true => format!("{:.4} [{:.4}, {:.4}]", found.ratio, found.low, found.high),
            false => format!("{:.4}", found.ratio),
        };
        writeln!(f, "  ratio {ratio}")?;
        writeln!(f, "  {found}")
    }
}
