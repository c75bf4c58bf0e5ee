//! Work on targets: the jobs of [`fio`] run on directories, files, and file systems made for the run
//! ([`TargetSpec`]), all of them interleaved.
//!
//! Data that existed before is overwritten only if requested. Everything that was created is removed.

pub mod fio;
mod made;
mod spec;

pub use crate::mounts::System;
pub use spec::{MadeSpec, TargetKind, TargetSpec};

use std::path::Path;

use crate::record::{Better, Record};
use crate::rounds::{Open, Terms, labels};
use crate::{Error, Result, commands};

/// What to run on targets.
pub struct Plan<'a> {
    /// A job file of fio; `None` for targets that are commands.
    pub job: Option<&'a Path>,
    /// The targets; the others are compared with the first.
    pub targets: &'a [TargetSpec],
    /// Set if each command prints a number above 0 as the last line of its standard output, with the
    /// direction that is better; it is recorded as [`FIGURE`](commands::FIGURE).
    pub figure: Option<Better>,
    /// Where images are created.
    pub dir: &'a Path,
    /// Whether a job may write to an existing file or device.
    pub overwrite: bool,
    /// Parameters common to all runs.
    pub terms: &'a Terms<'a>,
}

/// Runs commands or jobs. `open` may open a file for the record. Returns the whole record.
///
/// # Errors
/// If there is no target, if one cannot be opened or is not of the right kind, if a command or fio is missing
/// or fails (with the end of its output), and errors of the file. What was measured before is in the file.
pub fn run(plan: &Plan<'_>, open: &mut Open<'_>) -> Result<Record> {
    let labels = labels(plan.targets.iter().map(TargetSpec::label))?;
    match plan.job {
        Some(job) => fio::run(plan, job, labels, open),
        None => commands::run(plan, labels, open),
    }
}

/// An error if the user wants to stop.
pub(crate) fn check(interrupted: &dyn Fn() -> bool) -> Result<()> {
    match interrupted() {
        true => Err(Error::new("interrupted")),
        false => Ok(()),
    }
}
