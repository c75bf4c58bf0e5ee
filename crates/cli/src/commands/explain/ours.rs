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
        let json = inner.json || inner.command.json();
        is_watched(&inner.command).then_some((inner.globals, (json, inner.command)))
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
    match command {
        Command::Info(_)
        | Command::Ls(_)
        | Command::Tree(_)
        | Command::Stat(_)
        | Command::Cat(_)
        | Command::Cp(_)
        | Command::Rm(_)
        | Command::Mkdir(_)
        | Command::Mv(_)
        | Command::Ln(_)
        | Command::Readlink(_)
        | Command::Chmod(_)
        | Command::Chown(_)
        | Command::Find(_)
        | Command::Mknod(_)
        | Command::Getfattr(_)
        | Command::Setfattr(_)
        | Command::Getfacl(_)
        | Command::Setfacl(_)
        | Command::Lsattr(_)
        | Command::Chattr(_)
        | Command::Label(_)
        | Command::Uuid(_)
        | Command::Shell(_)
        | Command::Touch(_)
        | Command::Truncate(_)
        | Command::Df(_)
        | Command::Du(_)
        | Command::Tune(_)
        | Command::Replay(_)
        | Command::Overlay(_)
        | Command::Tar(_)
        | Command::Mount(_) => true,
        Command::Lab
        | Command::Umount(_)
        | Command::Status(_)
        | Command::InstallFuse2fs(_)
        | Command::InstallMke2fs(_)
        | Command::Mkfs(_)
        | Command::Pack(_)
        | Command::Resize(_)
        | Command::InstallHelpers(_)
        | Command::Explain(_)
        | Command::CompletePlace(_)
        | Command::Completions(_)
        | Command::Man(_) => false,
    }
}
