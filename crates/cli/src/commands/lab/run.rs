//! `lab run`: an experiment or a person's workload, its variants or targets interleaved, and the record of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;
use throughline::{EngineChoice, OpenOptions};
use throughline_lab::workload::{self, Asked, EXAMPLE, Entry, Plan, TargetSpec, Workload};
use throughline_lab::{Question, find};

use super::experiment::{self, AmountArgs, second};
use super::out_place::OutPlace;
use super::percent::{confidence, percent};
use crate::context::{Context, Globals};
use crate::images::Access;
use crate::problem::{Doing, Failure, Problem};
use crate::progress::Progress;
use crate::text::quote;

/// With --until-certain, if nothing else is said.
const MOST_ROUNDS: u32 = 1000;

/// Arguments of `lab run`.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// An experiment, as 'lab list' shows it, or a workload file (--example prints one)
    #[arg(value_name = "NAME|FILE.toml", required_unless_present = "example")]
    name: Option<PathBuf>,
    /// Print a workload file with every key and what it means, and run nothing
    #[arg(long, conflicts_with = "name")]
    example: bool,
    /// Measure this, instead of the workload file's list; said several times, all are measured interleaved, and held
    /// against the first
    #[arg(long, value_name = "SPEC", value_parser = parse_target)]
    target: Vec<TargetSpec>,
    /// Where the result goes, as JSON lines, while it runs; - for standard output, then without the table
    /// [default: NAME-DATE-TIME.jsonl in the current directory]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    amount: AmountArgs,
    /// End as soon as it is certain how each target compares with the first, after --rounds at the latest (1000, if it is
    /// not said); the confidence holds over all looks
    #[arg(long)]
    until_certain: bool,
    /// The quantity by which targets are compared, as the table calls it
    #[arg(long, value_name = "NAME", default_value = "throughput")]
    quantity: String,
    /// A difference no larger than this is none, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = Question::DEFAULT_THRESHOLD_PERCENT, value_parser = percent)]
    threshold: f64,
    /// How sure all answers together must be, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 * Question::DEFAULT_CONFIDENCE, value_parser = confidence)]
    confidence: f64,
    /// Let a workload write over what is there: a block device, a plain file, a named file of an image
    #[arg(long)]
    overwrite: bool,
}

/// Two targets that are to be compared by a workload, until that is certain.
pub(super) struct Live<'a> {
    /// The workload file.
    pub(super) workload: &'a Path,
    /// The one to compare with, and the one that is compared.
    pub(super) targets: [TargetSpec; 2],
    /// As the options of `lab run`.
    pub(super) out: Option<&'a Path>,
    /// The same.
    pub(super) dir: &'a Path,
    /// The same.
    pub(super) quantity: Option<&'a str>,
    /// The same.
    pub(super) threshold: f64,
    /// The same.
    pub(super) confidence: f64,
}

/// Runs the workload on both, interleaved, and shows the verdict.
pub(super) fn compare(live: Live<'_>, context: &mut Context) -> Result<(), Failure> {
    let args = RunArgs {
        name: Some(live.workload.to_owned()),
        example: false,
        target: live.targets.into(),
        out: live.out.map(Path::to_owned),
        amount: AmountArgs::whole(live.dir.to_owned()),
        until_certain: true,
        quantity: live.quantity.unwrap_or("throughput").to_owned(),
        threshold: live.threshold,
        confidence: live.confidence,
        overwrite: false,
    };
    run_workload(live.workload, &args, context)
}

impl RunArgs {
    /// Whether it is a workload file that is to be run, and not an experiment.
    fn is_workload(&self) -> bool {
        let extension = self.name.as_deref().and_then(Path::extension);
        extension.is_some_and(|extension| extension == "toml")
    }
}

fn parse_target(text: &str) -> Result<TargetSpec, String> {
    TargetSpec::parse(text).map_err(|error| error.to_string())
}

/// Runs it, shows what it found, and writes it down.
pub(super) fn run(args: &RunArgs, context: &mut Context) -> Result<(), Failure> {
    let name = match &args.name {
        Some(name) => name,
        None => return context.out.bytes(EXAMPLE.as_bytes()),
    };
    match args.is_workload() {
        true => run_workload(name, args, context),
        false => run_experiment(&name.to_string_lossy(), args, context),
    }
}

fn run_experiment(name: &str, args: &RunArgs, context: &mut Context) -> Result<(), Failure> {
    let experiment = find(name).map_err(|error| {
        Failure::Usage(format!("{error}; a workload's file is named FILE.toml"))
    })?;
    if !args.target.is_empty() || args.overwrite || args.until_certain {
        return Err(Failure::Usage(
            "an experiment has its own targets: --target, --overwrite, --until-certain are for workload files"
                .into(),
        ));
    }
    experiment::check_globals(&context.globals)?;
    let mut place = OutPlace::open(args.out.as_deref(), experiment.name, Timestamp::now())?;
    // An experiment has mounts and large files to take away.
    let cannot = || "cannot watch for Ctrl-C";
    context.interrupt().arm().doing(cannot)?;
    let (outcome, record) = experiment::measure(experiment, &args.amount, context)?;
    let cannot = |error| cannot_write(&error);
    let mut writer = place.begin(&record.head).map_err(cannot)?;
    record
        .lines
        .iter()
        .try_for_each(|line| writer.line(line))
        .map_err(cannot)?;
    place.show(&outcome.to_string(), context)?;
    context.interrupt().check()
}

fn run_workload(path: &Path, args: &RunArgs, context: &mut Context) -> Result<(), Failure> {
    let workload = read_workload(path, args)?;
    let options = options(&context.globals)?;
    let started = Timestamp::now();
    let mut place = OutPlace::open(args.out.as_deref(), &workload.name, started)?;
    let progress = Progress::rounds(context.globals.quiet);
    // There may be mounts and large files to take away.
    let cannot = || "cannot watch for Ctrl-C";
    context.interrupt().arm().doing(cannot)?;
    let interrupt = context.interrupt().clone();
    let watch = context.images.watch.clone();
    let asked = Asked {
        quantity: args.quantity.clone(),
        threshold_percent: args.threshold,
        confidence: args.confidence / 100.0,
        until_certain: args.until_certain,
    };
    let plan = Plan {
        workload: &workload,
        asked: &asked,
        dir: &args.amount.dir,
        overwrite: args.overwrite,
        options: &options,
        told: told(&context.globals),
        started: &second(started).to_string(),
        interrupted: &|| interrupt.check().is_err(),
        watch: watch.as_deref(),
        progress: &|done, of| {
            progress.round(done, of);
            Ok(())
        },
    };
    let mut writer = None;
    let ran = workload::run(&plan, &mut |entry| {
        match (entry, &mut writer) {
            (Entry::Head(head), _) => writer = Some(place.begin(head)?),
            (Entry::Line(line), Some(writer)) => writer.line(line)?,
            (Entry::Line(_), None) => {}
        }
        Ok(())
    });
    progress.clear();
    let record = match ran {
        Ok(record) => record,
        Err(error) => {
            context.interrupt().check()?;
            return Err(Problem::new(error.to_string()).met(format!("cannot run {}", quote(path))));
        }
    };
    place.show(&record.to_string(), context)?;
    context.interrupt().check()
}

fn read_workload(path: &Path, args: &RunArgs) -> Result<Workload, Failure> {
    if args.amount.scale != AmountArgs::WHOLE {
        return Err(Failure::Usage(
            "--scale is for experiments: a workload file says its size".into(),
        ));
    }
    let text = std::fs::read_to_string(path).doing(|| format!("cannot read {}", quote(path)))?;
    let mut workload = Workload::parse(&text)
        .map_err(|error| Failure::Usage(format!("{}: {error}", quote(path))))?;
    if workload.name == workload::UNNAMED {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        workload.rename(&stem);
    }
    if !args.target.is_empty() {
        workload.targets = args.target.clone();
    }
    match args.amount.rounds {
        Some(rounds) => workload.rounds = rounds.into(),
        None if args.until_certain => workload.rounds = MOST_ROUNDS,
        None => {}
    }
    if args.until_certain && workload.targets.len() < 2 {
        return Err(Failure::Usage(
            "--until-certain compares targets: name two or more".into(),
        ));
    }
    Ok(workload)
}

fn cannot_write(error: &throughline_lab::Error) -> Failure {
    Failure::plain(error.to_string())
}

/// How our engine's targets are opened.
fn options(globals: &Globals) -> Result<OpenOptions, Failure> {
    if globals.direct {
        return Err(Failure::Usage(
            "a workload file says what goes past the caches: cache = \"direct\", in place of --direct".into(),
        ));
    }
    globals.open_options(Access::Write)
}

/// The same for the record.
fn told(globals: &Globals) -> BTreeMap<String, Value> {
    let engine = EngineChoice::from(globals.engine).to_string();
    let mut told = BTreeMap::from([("engine".to_owned(), engine.into())]);
    told.extend(
        globals
            .told()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into())),
    );
    told
}
