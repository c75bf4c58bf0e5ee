//! Runs an experiment, for `lab run` and `lab founding`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;
use throughline_face::globals::Globals;
use throughline_lab::record::Record;
use throughline_lab::{Experiment, Settings};

use crate::context::Context;
use crate::problem::{Doing, Failure};
use crate::progress::Progress;

/// The full size, in percent.
pub(crate) const WHOLE: u64 = 100;

/// Where to measure, and how often.
#[derive(Args, Debug)]
pub(crate) struct PlaceArgs {
    /// Directory for images and files, on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Samples of each variant or target, instead of the number in the experiment (for jobs of
    /// fio 10, for commands 20); the maximum (default 1000) for a run that ends as soon as it is certain
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: Option<u16>,
}

/// How much work to do.
#[derive(Args, Debug)]
pub(crate) struct ScaleArgs {
    /// Work per sample, in percent of the experiment's full size
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = WHOLE,
        value_parser = clap::value_parser!(u64).range(1..=WHOLE)
    )]
    pub(crate) scale: u64,
}

/// Refuses engine options, which an experiment would ignore because it has its own settings.
pub(crate) fn check_globals(globals: &Globals) -> Result<(), Failure> {
    match globals.given().first() {
        None => Ok(()),
        Some((option, _)) => Err(Failure::Usage(format!(
            "--{option} has no effect here: experiments and job files have their own settings"
        ))),
    }
}

/// Runs the experiment and returns its record, also if it was interrupted after its first samples. The
/// handler for Ctrl-C must be armed.
pub(crate) fn measure(
    experiment: &Experiment,
    place: &PlaceArgs,
    scale: u64,
    context: &Context,
) -> Result<Record, Failure> {
    let progress = Progress::rounds(context.globals.quiet);
    let settings = Settings {
        dir: place.dir.clone(),
        rounds: place.rounds.map(usize::from),
        scale_percent: scale,
        engine: context.globals.engine.into(),
        progress: &|done, of| {
            progress.round(done, of);
            let interrupted = |_| throughline_lab::Error::new("interrupted");
            context.interrupt.check().map_err(interrupted)
        },
    };
    let started = second(Timestamp::now()).to_string();
    let given: BTreeMap<String, Value> = BTreeMap::from([
        ("scale".to_owned(), scale.into()),
        ("rounds".to_owned(), place.rounds.into()),
        ("dir".to_owned(), place.dir.display().to_string().into()),
        ("engine".to_owned(), settings.engine.to_string().into()),
    ]);
    let record = experiment.run(&settings, &started, given);
    progress.clear();
    if record.is_err() {
        context.interrupt.check()?;
    }
    record.doing(|| format!("cannot run {}", experiment.name))
}

/// Truncates to seconds.
pub(crate) fn second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
