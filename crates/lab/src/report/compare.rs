//! Compares every later file with the first, as `lab compare` does, for use in sentences. One run per side
//! proves nothing, so its change is shown without an interval.

use crate::compare::{Choice, Comparison, Row};
use crate::stats::{Judgement, Verdict};

use super::Source;
use super::text::{one_line, percent, with_unit};

/// One quantity of one series in two files.
#[derive(Debug)]
pub(super) struct Compared {
    /// The series, or both names if they differ.
    pub(super) series: String,
    pub(super) quantity: String,
    pub(super) unit: String,
    /// Names of the files.
    pub(super) base: String,
    pub(super) new: String,
    pub(super) base_mean: f64,
    pub(super) new_mean: f64,
    pub(super) judgement: Judgement,
}

/// Compares every later file with the first. The second value lists what could not be compared, and warnings
/// that the reader needs before trusting the rest.
pub(super) fn all(sources: &[Source]) -> (Vec<Compared>, Vec<String>) {
    let (mut compared, mut warnings) = (Vec::new(), Vec::new());
    let Some((base, others)) = sources.split_first() else {
        return (compared, warnings);
    };
    for new in others {
        let of = |source: &'_ Source| source.label.clone();
        let (from, to) = (of(base), of(new));
        let choice = Choice::default();
        match Comparison::of_runs(&[(&from, &base.record)], &[(&to, &new.record)], &choice) {
            Ok(found) => {
                warnings.extend(found.warnings);
                compared.extend(found.rows.into_iter().map(|row| one(&from, &to, row)));
            }
            Err(error) => warnings.push(format!("'{to}' is not compared with '{from}': {error}")),
        }
    }
    let mut warnings: Vec<String> = warnings.iter().map(|warning| one_line(warning)).collect();
    let mut seen = std::collections::BTreeSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    (compared, warnings)
}

fn one(base: &str, new: &str, row: Row) -> Compared {
    let series = match row.base.series == row.new.series {
        true => one_line(&row.base.series),
        false => format!(
            "{} and {}",
            one_line(&row.base.series),
            one_line(&row.new.series)
        ),
    };
    Compared {
        series,
        quantity: one_line(&row.quantity),
        unit: one_line(&row.unit),
        base: base.to_owned(),
        new: new.to_owned(),
        base_mean: row.base.summary.mean,
        new_mean: row.new.summary.mean,
        judgement: row.judgement,
    }
}

impl Compared {
    /// The verdict in one word that fits the quantity: memory is not "faster".
    pub(super) fn word(&self) -> &'static str {
        let times = ["ns", "us", "ms", "s", "IOPS", "kIOPS"];
        let speed = self.unit.contains("/s") || times.contains(&self.unit.as_str());
        match (self.judgement.verdict, speed) {
            (Verdict::Faster, true) => "faster",
            (Verdict::Slower, true) => "slower",
            (Verdict::Faster, false) => "better",
            (Verdict::Slower, false) => "worse",
            (Verdict::NoDifference, _) => "no difference",
            (Verdict::NotEnough, _) => "not enough evidence",
        }
    }

    /// The change, such as "-4.50 % [-5.10, -3.90]".
    pub(super) fn change(&self) -> String {
        let found = &self.judgement;
        let change = percent(found.change_percent);
        match found.has_interval() {
            true => format!(
                "{change} [{:+.2}, {:+.2}]",
                found.low_percent(),
                found.high_percent()
            ),
            false => format!("{change} [unknown]"),
        }
    }

    /// The means, such as "131.0 MB/s against 135.7 MB/s".
    pub(super) fn means(&self) -> String {
        let shown = |value| with_unit(value, &self.unit);
        format!("{} against {}", shown(self.new_mean), shown(self.base_mean))
    }
}
