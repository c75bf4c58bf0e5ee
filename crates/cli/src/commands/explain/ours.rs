//! Runs one of our commands in this process and traces the events of its engine.

use throughline_face::explain::{self, ExplainArgs, Seen};
use throughline_face::globals::Globals;

use crate::args::{Cli, Command};
use crate::context::Context;
use crate::problem::Failure;
use crate::{commands, conclude};

/// Runs the command. Returns `None` if only its help was printed. For a wrong command line, `exit_bits` is
/// set.
pub(super) fn run(
    args: &ExplainArgs,
    outer: &Globals,
    exit_bits: &mut u8,
) -> Result<Option<Seen>, Failure> {
    let parsed = Cli::try_parse_from(args.words()).map(|inner| {
        is_watched(&inner.command).then_some((inner.globals, (inner.json, inner.command)))
    });
    explain::ours(
        parsed,
        outer,
        exit_bits,
        |globals, (json, command), watch| {
            let mut explained = Context::new(globals, json);
            explained.images.watch = Some(watch);
            let result = commands::run(command, &mut explained);
            conclude(result, &mut explained)
        },
    )
}

/// Whether our engine does the command's I/O in this process.
fn is_watched(command: &Command) -> bool {
    use Command as C;
    let unwatched = matches!(
        command,
        C::Mkfs(_) | C::Pack(_) | C::Resize(_) | C::CompletePlace(_)
    );
    matches!(command, C::Mount(_)) || command.works_on_images() && !unwatched
}
