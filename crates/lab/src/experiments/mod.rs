//! The experiments by name.

mod cache_hit;
mod cache_scan;
mod cp_stream;
mod cp_tree;
mod founding1;
mod founding2;
mod founding3;
mod founding4;
mod founding5;
mod hammer;
mod journal_cost;
mod mount_choices;
mod mount_metadata;
mod mount_random;
mod mount_stream;
mod mount_sysbench;
mod mount_untar;
mod open;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::outcome::Outcome;
use crate::record::Record;
use crate::{Error, Result, Settings};

/// A named experiment.
pub struct Experiment {
    /// Its name, such as `founding/1`.
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
    run: fn(&Settings<'_>) -> Result<Outcome>,
}

impl Experiment {
    /// Runs it. The record says that it started at `started` (RFC 3339), and holds the settings in `told`.
    ///
    /// # Errors
    /// Errors of the measurement, and of [`Settings::progress`] before there is anything to keep.
    pub fn run(
        &self,
        settings: &Settings<'_>,
        started: &str,
        told: BTreeMap<String, Value>,
    ) -> Result<Record> {
        Ok((self.run)(settings)?.into_record(started, told))
    }
}

/// All experiments, in the order in which they are listed.
pub const EXPERIMENTS: &[Experiment] = &[
    founding1::EXPERIMENT,
    founding2::EXPERIMENT,
    founding3::EXPERIMENT,
    founding4::EXPERIMENT,
    founding5::EXPERIMENT,
    cp_stream::EXPERIMENT,
    cp_tree::EXPERIMENT,
    open::EXPERIMENT,
    cache_hit::EXPERIMENT,
    cache_scan::EXPERIMENT,
    journal_cost::EXPERIMENT,
    mount_stream::EXPERIMENT,
    mount_random::EXPERIMENT,
    mount_metadata::EXPERIMENT,
    mount_untar::EXPERIMENT,
    mount_sysbench::EXPERIMENT,
    mount_choices::EXPERIMENT,
];

/// The experiment with this name.
pub fn find(name: &str) -> Result<&'static Experiment> {
    EXPERIMENTS.iter().find(|e| e.name == name).ok_or_else(|| {
        let names: Vec<_> = EXPERIMENTS.iter().map(|e| e.name).collect();
        Error::new(format!(
            "no experiment '{name}'; there are: {}",
            names.join(", ")
        ))
    })
}

/// Runs one variant of an experiment by itself, unmeasured, in this process: for an experiment that runs it
/// under a profiler.
///
/// # Errors
/// If the experiment has no such variant, and errors of the run.
pub fn alone(name: &str, arguments: &[String]) -> Result<()> {
    if name == founding5::EXPERIMENT.name {
        return founding5::alone(arguments);
    }
    Err(Error::new(format!("'{name}' runs nothing alone")))
}
