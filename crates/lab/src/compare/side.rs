//! The samples of one quantity of one series, in every run of a side.

use std::collections::BTreeMap;

use super::{Choice, Run, Side};
use crate::record::{Better, Column};
use crate::stats::Summary;
use crate::{Error, Result};

/// One column per run.
pub(super) struct Group {
    pub(super) series: String,
    pub(super) quantity: String,
    pub(super) unit: String,
    pub(super) better: Better,
    /// The samples of each run, in the order of the runs.
    pub(super) runs: Vec<Column>,
}

/// The series and quantities that all runs have, without skipped rounds, ordered by series, then quantity.
///
/// # Errors
/// If there are no samples, or no series and quantity common to all runs.
pub(super) fn groups(runs: &[Run<'_>], choice: &Choice) -> Result<Vec<Group>> {
    let mut groups: BTreeMap<(String, String), Vec<Column>> = BTreeMap::new();
    for (_, record) in runs {
        for mut column in record.columns() {
            let counted = |(round, _): &(u32, f64)| *round > choice.skip_rounds;
            column.samples.retain(counted);
            let name = (column.series.clone(), column.quantity.clone());
            if !column.samples.is_empty() {
                groups.entry(name).or_default().push(column);
            }
        }
    }
    if groups.is_empty() {
        let name = runs.first().map_or("the run", |run| run.0);
        return Err(Error::new(format!("{name} contains no samples to compare")));
    }
    groups.retain(|_, columns| {
        let one_unit = columns.iter().all(|column| column.unit == columns[0].unit);
        columns.len() == runs.len() && one_unit
    });
    if groups.is_empty() {
        return Err(Error::new(
            "the runs of a side have no series with the same quantity in common",
        ));
    }
    let group = |((series, quantity), runs): ((String, String), Vec<Column>)| Group {
        series,
        quantity,
        unit: runs[0].unit.clone(),
        better: runs[0].better,
        runs,
    };
    Ok(groups.into_iter().map(group).collect())
}

impl Group {
    /// Each run's median.
    pub(super) fn figures(&self) -> Vec<f64> {
        let median = |column: &Column| Summary::of(&column.values()).median;
        self.runs.iter().map(median).collect()
    }

    /// The values to show: the samples of a single run, or the medians of several.
    pub(super) fn side(&self) -> Side {
        Side {
            series: self.series.clone(),
            summary: Summary::of(&match &self.runs[..] {
                [one] => one.values(),
                _ => self.figures(),
            }),
        }
    }
}
