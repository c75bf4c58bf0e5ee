//! The lab: named experiments that measure the I/O path. Variants are measured interleaved, and comparisons
//! take the spread of their samples into account.
//!
//! Each experiment tests one claim: those of the five reports that the project started from (`founding/…`),
//! and the goals of the design. The naive variants from the reports are part of the lab, not of the engine.
//! Benchmarks report and tests check: nothing is asserted here, and a limit is reported as met or not met.
#![forbid(unsafe_code)]

pub mod bisect;
mod callgrind;
mod command;
pub mod commands;
pub mod compare;
mod experiments;
pub mod founding;
mod interleave;
mod kernel;
mod meter;
mod modelled;
mod mounts;
mod outcome;
pub mod percent;
pub mod record;
pub mod report;
pub mod rounds;
mod shell;
pub mod stats;
mod streams;
mod tap;
mod warm;
pub mod workload;

use std::path::{Path, PathBuf};

use throughline::{OpenOptions, Volume};
use throughline_device::EngineChoice;

pub use experiments::{EXPERIMENTS, Experiment, alone, find};
pub use stats::{Judgement, Question, Summary, Verdict};
pub use throughline_explain::{Error, Result};

/// Called with the number of completed rounds or samples and their total. An error ends the experiment.
pub type Progress<'a> = dyn Fn(usize, usize) -> Result<()> + 'a;

/// How to run an experiment.
pub struct Settings<'a> {
    /// Where images and files are created: a directory on the disk to measure.
    pub dir: PathBuf,
    /// Samples per variant; `None` uses the experiment's default.
    pub rounds: Option<usize>,
    /// Work per sample, in percent of the experiment's full size (1 to 100).
    pub scale_percent: u64,
    /// The engine used to open devices.
    pub engine: EngineChoice,
    /// Called before each sample with the rounds done and the total; an error ends the experiment.
    pub progress: &'a Progress<'a>,
}

impl Settings<'_> {
    /// Options for opening targets of our engine.
    pub(crate) fn opening(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.write(true);
        options.engine(self.engine);
        options
    }

    /// Opens the volume on an image.
    pub(crate) fn volume(&self, image: &Path) -> Result<Volume> {
        Ok(self.opening().open(image)?)
    }

    /// Scales `full` by [`Settings::scale_percent`], but not below `floor`.
    pub(crate) fn scaled(&self, full: u64, floor: u64) -> u64 {
        (full.saturating_mul(self.scale_percent) / 100).max(floor)
    }

    /// A new directory in [`Settings::dir`], removed when the value is dropped.
    pub(crate) fn scratch(&self) -> Result<tempfile::TempDir> {
        scratch_in(&self.dir)
    }
}

/// A new directory in `dir`, removed when the value is dropped.
pub(crate) fn scratch_in(dir: &Path) -> Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("throughline-lab-")
        .tempdir_in(dir)
        .map_err(|e| Error::new(format!("cannot make a folder in {}: {e}", dir.display())))
}
