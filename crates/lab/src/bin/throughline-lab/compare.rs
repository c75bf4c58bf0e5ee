//! `lab compare`: two sides, measured now or read from files, in one table.

use clap::Args;
use throughline_face::command_line::JsonFlag;
use throughline_lab::percent::percent;
use throughline_lab::stats::Until;

use crate::context::Context;
use crate::problem::Failure;
use crate::sides::SidesArgs;

/// Arguments of `lab compare`.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    sides: SidesArgs,
    /// A difference up to this size, in percent, counts as none
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    threshold: f64,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Compares and prints the table.
pub(crate) fn run(args: &CompareArgs, context: &mut Context) -> Result<(), Failure> {
    let ends = |_: &str| Ok(Until::Certain);
    let comparison = args
        .sides
        .compared(Vec::new(), args.threshold, &ends, context)?;
    if context.json {
        return context.out.json(&comparison);
    }
    context.out.line(comparison.to_string().trim_end())
}
