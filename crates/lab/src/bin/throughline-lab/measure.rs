//! Measures targets now, for `lab run`, `lab compare` and `lab gate`.

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use throughline_lab::percent::better;
use throughline_lab::record::{Better, Record};
use throughline_lab::rounds::{Asked, Terms};
use throughline_lab::stats::Until;
use throughline_lab::workload::{self, Plan, TargetSpec};
use throughline_lab::{commands, rounds};

use crate::context::Context;
use crate::experiment::{PlaceArgs, check_globals};
use crate::out_place::OutPlace;
use crate::problem::{Doing, Failure};
use crate::progress::Progress;
use crate::text::quote;

/// Maximum rounds of a run that may end early, unless specified.
const MAX_ROUNDS: u32 = 1000;
/// Rounds of commands, unless specified.
const ROUNDS_OF_COMMANDS: u32 = 20;
/// Rounds of a job file of fio, unless specified.
const ROUNDS_OF_FIO: u32 = 10;

/// Options for measuring targets.
#[derive(Args, Debug)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Result file, written as JSON lines during the run; - for standard output, without the table
    /// [default: NAME-DATE-TIME.jsonl in the current directory]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Compare cmd: targets by a figure instead of their time: the last line of each standard output, a
    /// number above 0; WAY says whether higher or lower is better
    #[arg(long, value_name = "WAY", value_parser = better())]
    pub(crate) figure: Option<Better>,
    /// Seed of the order of targets [default: random; recorded in the result]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// What to measure, and for which question.
pub(crate) struct Measurement<'a> {
    /// A job file of fio; `None` for commands.
    pub(crate) workload: Option<&'a Path>,
    /// Where it runs, or the commands.
    pub(crate) targets: &'a [TargetSpec],
    /// How to measure.
    pub(crate) how: &'a MeasureArgs,
    /// The quantity to compare, if not the default.
    pub(crate) quantity: Option<&'a str>,
    /// The condition that ends the run early.
    pub(crate) until: Option<Until>,
    /// Differences up to this one are ignored, in percent.
    pub(crate) threshold: f64,
    /// Confidence of all answers together.
    pub(crate) confidence: f64,
    /// Overwrite an existing record.
    pub(crate) overwrite: bool,
}

impl Measurement<'_> {
    /// The quantity to compare.
    pub(crate) fn quantity(&self) -> &str {
        let usual = match (self.workload, self.how.figure) {
            (Some(_), _) => "throughput",
            (None, Some(_)) => commands::FIGURE,
            (None, None) => commands::TIME,
        };
        self.quantity.unwrap_or(usual)
    }

    /// The names of the targets in the record.
    pub(crate) fn labels(&self) -> Result<Vec<String>, Failure> {
        rounds::labels(self.targets.iter().map(TargetSpec::label))
            .map_err(|error| Failure::Usage(error.to_string()))
    }

    /// Measures in rounds and records the results. Returns the record and its place.
    pub(crate) fn run(&self, context: &mut Context) -> Result<(Record, OutPlace), Failure> {
        self.check()?;
        let name = match self.workload {
            Some(path) => path.file_stem().unwrap_or_default().to_string_lossy(),
            None => "commands".into(),
        };
        let usual = match (self.until, self.workload) {
            (Some(_), _) => MAX_ROUNDS,
            (None, Some(_)) => ROUNDS_OF_FIO,
            (None, None) => ROUNDS_OF_COMMANDS,
        };
        check_globals(&context.globals)?;
        let started = Timestamp::now();
        let mut place = OutPlace::open(self.how.out.as_deref(), &name, started)?;
        let progress = Progress::rounds(context.globals.quiet);
        // An interrupted run must remove its mounts and large files.
        context.interrupt.arm()?;
        let interrupt = context.interrupt.clone();
        let asked = Asked {
            quantity: self.quantity().to_owned(),
            threshold_percent: self.threshold,
            confidence: self.confidence,
            until: self.until,
        };
        let terms = Terms {
            rounds: self.how.place.rounds.map_or(usual, u32::from),
            seed: self.how.seed.unwrap_or_else(drawn),
            asked: &asked,
            started: &format!("{started:.3}"),
            interrupted: &|| interrupt.check().is_err(),
            progress: &|done, of| {
                progress.round(done, of);
                Ok(())
            },
        };
        let plan = Plan {
            job: self.workload,
            targets: self.targets,
            figure: self.how.figure,
            dir: &self.how.place.dir,
            overwrite: self.overwrite,
            terms: &terms,
        };
        let ran = workload::run(&plan, &mut |head| place.begin(head).map(Some));
        progress.clear();
        if ran.is_err() {
            context.interrupt.check()?;
        }
        Ok((
            ran.doing(|| format!("cannot run {}", quote(&*name)))?,
            place,
        ))
    }

    /// Refuses what does not fit together.
    fn check(&self) -> Result<(), Failure> {
        let command = self.targets.iter().find(|target| !target.is_command());
        let why = match (self.workload, command) {
            (None, Some(target)) => format!(
                "target {} needs a job file of fio; only cmd: targets need none",
                quote(target.label())
            ),
            (Some(_), _) if self.how.figure.is_some() => {
                "--figure applies to cmd: targets only".to_owned()
            }
            _ if self.until.is_some() && self.targets.len() < 2 => {
                "--until-certain compares targets: name two or more".to_owned()
            }
            _ => return Ok(()),
        };
        Err(Failure::Usage(why))
    }
}

/// A random seed.
fn drawn() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // At most 52 bits, so that every JSON reader represents it exactly.
    RandomState::new().hash_one(0) >> 12
}
