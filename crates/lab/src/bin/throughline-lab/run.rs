//! `lab run`: runs an experiment, a job file of fio or commands, with all variants or targets interleaved,
//! and records the result.

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use throughline_lab::find;
use throughline_lab::percent::{confidence, percent};
use throughline_lab::record::Table;
use throughline_lab::stats::Until;
use throughline_lab::workload::TargetSpec;

use crate::context::Context;
use crate::experiment::{self, ScaleArgs};
use crate::measure::{MeasureArgs, Measurement};
use crate::out_place::OutPlace;
use crate::problem::Failure;

/// Arguments of `lab run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// An experiment from 'lab list', or a job file of fio
    #[arg(value_name = "NAME|JOB.fio", required_unless_present = "target")]
    name: Option<PathBuf>,
    /// Measure this target. Several targets are measured interleaved and compared with the first.
    /// cmd:COMMAND does its own work and takes no job file
    #[arg(long, value_name = "SPEC", value_parser = parse_target)]
    target: Vec<TargetSpec>,
    #[command(flatten)]
    how: MeasureArgs,
    #[command(flatten)]
    scale: ScaleArgs,
    /// Stop when it is certain how each target compares with the first, at the latest after --rounds (default
    /// 1000); the confidence covers all interim checks
    #[arg(long)]
    until_certain: bool,
    /// The quantity to compare targets by, as named in the table [default: throughput; for commands, time or
    /// figure]
    #[arg(long, value_name = "NAME")]
    quantity: Option<String>,
    /// A difference up to this size, in percent, counts as none
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    threshold: f64,
    /// Required confidence of all answers together, in percent
    #[arg(long, value_name = "PERCENT", default_value = "99.5", value_parser = confidence)]
    confidence: f64,
    /// Allow a job to overwrite existing data: a block device or a plain file
    #[arg(long)]
    overwrite: bool,
}

impl RunArgs {
    /// Whether it runs an experiment, not a job file of fio or commands.
    fn is_experiment(&self) -> bool {
        let name = self.name.as_deref();
        name.is_some_and(|name| name.extension().is_none_or(|extension| extension != "fio"))
    }
}

fn parse_target(text: &str) -> Result<TargetSpec, String> {
    TargetSpec::parse(text).map_err(|error| error.to_string())
}

/// Runs it, prints the result and records it.
pub(crate) fn run(args: &RunArgs, context: &mut Context) -> Result<(), Failure> {
    match &args.name {
        Some(name) if args.is_experiment() => {
            run_experiment(&name.to_string_lossy(), args, context)
        }
        job => run_targets(job.as_deref(), args, context),
    }
}

fn run_experiment(name: &str, args: &RunArgs, context: &mut Context) -> Result<(), Failure> {
    let experiment = find(name)
        .map_err(|error| Failure::Usage(format!("{error}; the name of a job file ends in .fio")))?;
    if !args.target.is_empty() || args.overwrite || args.until_certain || args.how.figure.is_some()
    {
        return Err(Failure::Usage(
            "--target, --overwrite, --until-certain and --figure apply to job files and commands only"
                .into(),
        ));
    }
    experiment::check_globals(&context.globals)?;
    let mut place = OutPlace::open(args.how.out.as_deref(), experiment.name, Timestamp::now())?;
    // An interrupted experiment must remove its mounts and large files.
    context.interrupt.arm()?;
    let record = experiment::measure(experiment, &args.how.place, args.scale.scale, context)?;
    let mut written = || {
        let mut writer = place.begin(&record.head)?;
        record.lines.iter().try_for_each(|line| writer.line(line))?;
        Ok(())
    };
    written().map_err(|error: throughline_lab::Error| Failure::plain(error.to_string()))?;
    place.show(&Table(&record).to_string(), context)?;
    context.interrupt.check()
}

fn run_targets(
    workload: Option<&Path>,
    args: &RunArgs,
    context: &mut Context,
) -> Result<(), Failure> {
    if args.scale.scale != experiment::WHOLE {
        return Err(Failure::Usage(
            "--scale applies to experiments only: the size of a job is set in its file".into(),
        ));
    }
    let measurement = Measurement {
        workload,
        targets: &args.target,
        how: &args.how,
        quantity: args.quantity.as_deref(),
        until: args.until_certain.then_some(Until::Certain),
        threshold: args.threshold,
        confidence: args.confidence,
        overwrite: args.overwrite,
    };
    let (record, place) = measurement.run(context)?;
    place.show(&Table(&record).to_string(), context)?;
    context.interrupt.check()
}
