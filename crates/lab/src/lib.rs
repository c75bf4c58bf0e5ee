//! The lab: named experiments that measure the I/O path, variant against variant, interleaved, with their spread.
//!
//! Each experiment keeps one claim alive: the five reports the project started from (`founding/…`), and the aims
//! of the design. The naive ways of the reports live here, not in the engine. Benchmarks print, tests check:
//! nothing here is asserted, a bar is reported as met or not.
#![forbid(unsafe_code)]

pub mod bisect;
mod callgrind;
mod command;
pub mod commands;
pub mod compare;
mod experiments;
pub mod explain;
pub mod founding;
mod hollow;
mod interleave;
pub mod kernel;
mod machine;
mod meter;
mod modelled;
mod mounts;
mod outcome;
mod probe;
pub mod record;
pub mod report;
pub mod rounds;
mod shell;
pub mod stats;
mod streams;
mod wake_up;
mod warm;
pub mod workload;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline::{Listener, OpenOptions, PageCache, RawFile, Volume};
use throughline_block::Disk;
use throughline_device::EngineChoice;

use crate::explain::ours::Watch;

pub use experiments::{EXPERIMENTS, Experiment, alone, find};
pub use machine::Machine;
pub use outcome::Bar;
/// Device models, by name.
pub use throughline_models as models;

pub use stats::{Judgement, Question, Ratio, Summary, Verdict};

/// Why an experiment could not be run.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Error {
        Error(message.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// What the layers below say, in their words.
macro_rules! from_below {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Error {
                Error(error.to_string())
            }
        })*
    };
}
from_below!(
    std::io::Error,
    rustix::io::Errno,
    serde_json::Error,
    throughline::Error,
    throughline_block::Error,
    throughline_fileio::Error,
);

/// Result of the lab.
pub type Result<T> = std::result::Result<T, Error>;

/// Is told how many rounds are done, and of how many, and may end the experiment.
pub type Progress<'a> = dyn Fn(usize, usize) -> Result<()> + 'a;

/// How a person wants an experiment run.
pub struct Settings<'a> {
    /// Where images and files are made: a folder on the disk to be measured.
    pub dir: PathBuf,
    /// Samples per variant; `None` takes the experiment's own number.
    pub rounds: Option<usize>,
    /// Work per sample as a share of the experiment's full size, in percent (1 to 100).
    pub scale_percent: u64,
    /// The engine that devices are opened with.
    pub engine: EngineChoice,
    /// Told before each sample how many rounds are done, and of how many; its error ends the experiment.
    pub progress: &'a Progress<'a>,
    /// Told of what our engine does for each variant, if the run is explained.
    pub watch: Option<&'a Watch>,
}

impl Settings<'_> {
    /// Options to open something of ours with: by the run's engine, observed where the run is explained.
    pub(crate) fn opening(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.write(true);
        options.engine(self.engine).listener(self.listener());
        options
    }

    /// Opens the volume on an image, its cache observed too.
    pub(crate) fn volume(&self, image: &Path) -> Result<Volume> {
        let volume = self.opening().open(image)?;
        self.observe_cache(volume.cache());
        Ok(volume)
    }

    /// The same for a device that is driven without more of the engine.
    pub(crate) fn observe_disk(&self, disk: &Disk) {
        if let Some(listener) = self.listener() {
            disk.listen(listener);
        }
    }

    /// The same for the cache of something that is open.
    pub(crate) fn observe_cache(&self, cache: &Arc<PageCache>) {
        if let Some(watch) = self.watch {
            watch.variants().cache(cache);
        }
    }

    /// The same for a plain file or a device.
    pub(crate) fn observe_cache_of(&self, file: &RawFile) {
        if self.watch.is_some() {
            // It makes one with the first buffered write at the latest.
            file.prepare_cache();
            file.cache()
                .into_iter()
                .for_each(|cache| self.observe_cache(cache));
        }
    }

    fn listener(&self) -> Option<Arc<dyn Listener>> {
        let variants = Arc::clone(self.watch?.variants());
        Some(variants as Arc<dyn Listener>)
    }

    /// `full` scaled, but at least `floor`.
    pub(crate) fn scaled(&self, full: u64, floor: u64) -> u64 {
        (full.saturating_mul(self.scale_percent) / 100).max(floor)
    }

    /// A new folder in [`Settings::dir`] that vanishes with the value.
    pub(crate) fn scratch(&self) -> Result<tempfile::TempDir> {
        scratch_in(&self.dir)
    }
}

/// A new folder in `dir` that vanishes with the value.
pub(crate) fn scratch_in(dir: &Path) -> Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("throughline-lab-")
        .tempdir_in(dir)
        .map_err(|e| Error::new(format!("cannot make a folder in {}: {e}", dir.display())))
}
