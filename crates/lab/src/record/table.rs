//! A [`Record`] as a table for people.

use std::fmt;

use super::{Line, Record};
use crate::outcome::row;
use crate::stats::Summary;

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  ({})", self.head.name, self.head.machine)?;
        for column in self.columns() {
            let summary = Summary::of(&column.values());
            row(f, &column.series, &column.quantity, &column.unit, &summary)?;
        }
        for line in &self.lines {
            match line {
                Line::Note { text } => writeln!(f, "  note  {text}")?,
                Line::End { why } if why != "rounds" => writeln!(f, "  end   {why}")?,
                _ => {}
            }
        }
        for effect in self.effects_of_order() {
            writeln!(f, "  note  {effect}")?;
        }
        Ok(())
    }
}
