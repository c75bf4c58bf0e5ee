//! `lab compare`: two runs, or two series of one, side by side.

use std::path::{Path, PathBuf};

use clap::Args;
use throughline_lab::compare::{Choice, Comparison};
use throughline_lab::record::Record;
use throughline_lab::workload::TargetSpec;
use throughline_lab::{Error, Question};

use super::percent::{confidence, percent};
use super::run::{self, Live};
use crate::args::JsonFlag;
use crate::context::Context;
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;

/// What is compared, and how sure the answer must be: of `compare` and `gate`.
#[derive(Args, Debug)]
pub(super) struct ChoiceArgs {
    /// Compare this series alone, which both have; may be given several times [default: all that both have]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["base_series", "new_series"])]
    series: Vec<String>,
    /// Compare this quantity alone; may be given several times [default: all that both have]
    #[arg(long, value_name = "NAME")]
    pub(super) quantity: Vec<String>,
    /// The series to compare with, where the two have different names, or are in one file
    #[arg(long, value_name = "NAME")]
    base_series: Option<String>,
    /// The series that is compared with it
    #[arg(long, value_name = "NAME")]
    new_series: Option<String>,
    /// Leave the first rounds out, because they warmed up
    #[arg(long, value_name = "ROUNDS", default_value_t = 0)]
    skip: u32,
    /// How sure all answers together must be, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 * Question::DEFAULT_CONFIDENCE, value_parser = confidence)]
    confidence: f64,
}

impl ChoiceArgs {
    /// The lab's form.
    pub(super) fn choice(&self, threshold_percent: f64) -> Choice {
        Choice {
            series: self.series.clone(),
            quantities: self.quantity.clone(),
            base: self.base_series.clone(),
            new: self.new_series.clone(),
            skip_rounds: self.skip,
            threshold_percent,
            confidence: self.confidence / 100.0,
        }
    }
}

/// Arguments of `lab compare`.
#[derive(Args, Debug)]
pub(super) struct CompareArgs {
    /// The run to compare with; with --workload, a target as 'lab run' takes it
    #[arg(value_name = "BASE")]
    base: PathBuf,
    /// The run, or target, that is compared with it; without it, --base-series and --new-series name two series of BASE
    #[arg(value_name = "NEW")]
    new: Option<PathBuf>,
    /// Compare two targets, not two files: run this workload on both, interleaved, until the answer is certain, 1000 rounds at
    /// the most. The run is kept as a file, as 'lab run' keeps it; with --json it goes to standard output instead
    #[arg(long, value_name = "FILE.toml", requires = "new", conflicts_with_all = ["series", "base_series", "new_series", "skip"])]
    workload: Option<PathBuf>,
    /// With --workload: the directory for images and files, on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".", requires = "workload")]
    dir: PathBuf,
    #[command(flatten)]
    choice: ChoiceArgs,
    /// A difference no larger than this is none, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = Question::DEFAULT_THRESHOLD_PERCENT, value_parser = percent)]
    threshold: f64,
    #[command(flatten)]
    pub(super) json: JsonFlag,
}

impl CompareArgs {
    /// Whether it measures targets, and does not read files.
    pub(super) fn measures(&self) -> bool {
        self.workload.is_some()
    }
}

/// Compares and shows the table.
pub(super) fn run(args: &CompareArgs, context: &mut Context) -> Result<(), Failure> {
    if let (Some(workload), Some(new)) = (&args.workload, &args.new) {
        return live(workload, new, args, context);
    }
    let comparison = compared(
        &args.base,
        args.new.as_deref(),
        &args.choice.choice(args.threshold),
    )?;
    if context.json {
        return context.out.json(&shown(serde_json::to_value(&comparison))?);
    }
    context.out.line(comparison.to_string().trim_end())
}

/// Measures and compares.
fn live(
    workload: &Path,
    new: &Path,
    args: &CompareArgs,
    context: &mut Context,
) -> Result<(), Failure> {
    let target = |path: &Path| {
        TargetSpec::parse(&path.to_string_lossy())
            .map_err(|error| Failure::Usage(error.to_string()))
    };
    let quantity = match &args.choice.quantity[..] {
        [] => None,
        [one] => Some(one.as_str()),
        _ => {
            return Err(Failure::Usage(
                "with --workload, one --quantity decides when the answer is certain".into(),
            ));
        }
    };
    let live = Live {
        workload,
        targets: [target(&args.base)?, target(new)?],
        out: context.json.then_some(Path::new("-")),
        dir: &args.dir,
        quantity,
        threshold: args.threshold,
        confidence: args.choice.confidence,
    };
    run::compare(live, context)
}

/// Reads and compares.
pub(super) fn compared(
    base: &Path,
    new: Option<&Path>,
    choice: &Choice,
) -> Result<Comparison, Failure> {
    let name = |path: &Path| path.display().to_string();
    let base_run = read(base)?;
    let cannot = |error: Error| {
        Problem::new(error.to_string())
            .with_next("--series, --quantity, or --base-series and --new-series say what is compared with what")
            .met("cannot compare")
    };
    match new {
        Some(new) => {
            let new_run = read(new)?;
            Comparison::of_two((&name(base), &base_run), (&name(new), &new_run), choice)
                .map_err(cannot)
        }
        None => Comparison::within((&name(base), &base_run), choice).map_err(cannot),
    }
}

fn read(path: &Path) -> Result<Record, Failure> {
    Record::read(path).map_err(|error| {
        Problem::new(error.to_string())
            .with_next("name a file that 'throughline lab run' wrote; for targets, say with --workload what is to be run on them")
            .met(format!("cannot take {} for a run", quote(path)))
    })
}

/// What became JSON, or not.
pub(super) fn shown(
    value: serde_json::Result<serde_json::Value>,
) -> Result<serde_json::Value, Failure> {
    value
        .map_err(std::io::Error::from)
        .doing(|| "cannot show the figures")
}
