//! `explain`: runs one of our commands (with `--kernel`, any command) and shows what the I/O path did.

mod kernel;
mod ours;

use throughline_face::explain::ExplainArgs;

use crate::context::Context;
use crate::problem::Failure;

/// Runs the command and explains it.
pub(crate) fn run(args: &ExplainArgs, context: &mut Context) -> Result<(), Failure> {
    let (globals, out) = (&context.globals, &mut context.out);
    args.explain(
        context.json,
        out,
        &mut context.exit_bits,
        |exit_bits| match args.kernel {
            true => kernel::run(args, exit_bits).map(Some),
            false => ours::run(args, globals, exit_bits),
        },
    )
}
