//! `lab compare`: two sides, measured now or read from files, in one table.

use clap::Args;
use throughline_face::command_line::JsonFlag;
use throughline_lab::stats::Until;

use crate::context::Context;
use crate::percent::ThresholdArgs;
use crate::problem::Failure;
use crate::sides::SidesArgs;

/// Arguments of `lab compare`.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    sides: SidesArgs,
    #[command(flatten)]
    threshold: ThresholdArgs,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Compares and prints the table.
pub(crate) fn run(args: &CompareArgs, context: &mut Context) -> Result<(), Failure> {
    let ends = |_: &str| Ok(Until::Certain);
    let comparison = args
        .sides
        .compared(Vec::new(), args.threshold.threshold, &ends, context)?;
    if context.json {
        return context.out.json(&comparison);
    }
    context.out.line(comparison.to_string().trim_end())
}
