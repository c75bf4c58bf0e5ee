//! `lab run`: an experiment, its variants interleaved.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use throughline_lab::{Settings, find};

use crate::context::Context;
use crate::problem::{Doing, Failure, Problem};
use crate::progress::Progress;
use crate::text::quote;

/// Arguments of `lab run`.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// Its name, as 'lab list' shows it
    name: String,
    /// Write the figures to this file as JSON too (- for standard output, then without the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The directory for images and files: on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Samples of each variant, instead of the experiment's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Work for each sample, in percent of the experiment's full size
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100))]
    scale: u64,
}

/// Runs it and shows, or writes, what it found.
pub(super) fn run(args: &RunArgs, context: &mut Context) -> Result<(), Failure> {
    let experiment = find(&args.name).map_err(|error| Failure::Usage(error.to_string()))?;
    let progress = Progress::rounds(context.globals.quiet);
    // An experiment has mounts and large files to take away.
    let cannot = || "cannot watch for Ctrl-C";
    context.interrupt().arm().doing(cannot)?;
    let settings = Settings {
        dir: args.dir.clone(),
        rounds: args.rounds.map(usize::from),
        scale_percent: args.scale,
        engine: context.globals.engine.into(),
        progress: &|done, of| {
            progress.round(done, of);
            let interrupted = |_| throughline_lab::Error::new("interrupted");
            context.interrupt().check().map_err(interrupted)
        },
    };
    let outcome = (experiment.run)(&settings);
    progress.clear();
    context.interrupt().check()?;
    let outcome = outcome.map_err(|error| {
        Problem::new(error.to_string()).met(format!("cannot run {}", experiment.name))
    })?;
    let Some(path) = &args.json else {
        return context.out.line(outcome.to_string().trim_end());
    };
    let value = serde_json::to_value(&outcome)
        .map_err(std::io::Error::from)
        .doing(|| "cannot show the figures")?;
    if path.as_os_str() == "-" {
        return context.out.json(&value);
    }
    context.out.line(outcome.to_string().trim_end())?;
    let cannot = || format!("cannot write {}", quote(path));
    let mut file = std::fs::File::create(path).doing(cannot)?;
    serde_json::to_writer_pretty(&mut file, &value)
        .map_err(std::io::Error::from)
        .doing(cannot)?;
    writeln!(file).doing(cannot)
}
