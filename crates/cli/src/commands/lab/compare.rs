//! `lab compare`: two sides, measured now or read from files, in one table.

use clap::Args;
use throughline_lab::Question;
use throughline_lab::stats::Until;

use super::percent::percent;
use super::sides::SidesArgs;
use crate::args::JsonFlag;
use crate::context::Context;
use crate::problem::{Doing, Failure};

/// Arguments of `lab compare`.
#[derive(Args, Debug)]
pub(super) struct CompareArgs {
    #[command(flatten)]
    sides: SidesArgs,
    /// A difference up to this size, in percent, counts as none
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = Question::DEFAULT_THRESHOLD_PERCENT,
        value_parser = percent
    )]
    threshold: f64,
    #[command(flatten)]
    pub(super) json: JsonFlag,
}

impl CompareArgs {
    /// Whether it measures in this process.
    pub(super) fn measures(&self) -> bool {
        self.sides.has_workload()
    }
}

/// Compares and prints the table.
pub(super) fn run(args: &CompareArgs, context: &mut Context) -> Result<(), Failure> {
    let ends = |_: &str| Ok(Until::Certain);
    let comparison = args
        .sides
        .compared(Vec::new(), args.threshold, &ends, context)?;
    if context.json {
        return context.out.json(&shown(serde_json::to_value(&comparison))?);
    }
    context.out.line(comparison.to_string().trim_end())
}

/// The JSON value, or the error of its conversion.
pub(super) fn shown(
    value: serde_json::Result<serde_json::Value>,
) -> Result<serde_json::Value, Failure> {
    value
        .map_err(std::io::Error::from)
        .doing(|| "cannot print the results")
}
