//! `explain`: runs one of our commands (with `--kernel`, any command) and shows what the I/O path did.

mod kernel;
mod ours;

use throughline_face::explain::ExplainArgs;

use crate::context::Context;
use crate::problem::Failure;

/// Runs the command and explains it.
pub(crate) fn run(args: &ExplainArgs, context: &mut Context) -> Result<(), Failure> {
    let (globals, exit_bits) = (&context.globals, &mut context.exit_bits);
    let code = args.explain(context.json, &mut context.out, || match args.kernel {
        true => Ok(Some(kernel::run(args, exit_bits)?)),
        false => ours::run(args, globals, exit_bits),
    })?;
    if code == 0 {
        return Ok(());
    }
    context.exit_bits = code;
    Err(Failure::Reported)
}
