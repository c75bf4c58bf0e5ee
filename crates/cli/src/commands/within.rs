//! Runs a command inside another one, with the same open images: a line of a shell, or of `find -exec`.

use std::ffi::OsString;

use crate::args::{Cli, Command};
use crate::context::Context;
use crate::output::{Complaints, misread};
use crate::problem::Failure;

/// Why the inner command did not complete.
pub(super) enum Stop {
    /// The failure was reported; this is the exit code.
    Failed(u8),
    /// The whole program must end.
    Ends(Failure),
}

/// Runs words as on the command line.
pub(super) fn within(
    words: impl Iterator<Item = OsString>,
    context: &mut Context,
) -> Result<(), Stop> {
    let cli = match Cli::try_parse_inner(std::iter::once("throughline".into()).chain(words)) {
        Ok(cli) => cli,
        Err(error) => {
            misread(&error);
            return match error.exit_code() {
                0 => Ok(()),
                _ => Err(Stop::Failed(2)),
            };
        }
    };
    if !is_for_files(&cli.command) {
        context
            .complaints
            .note("this command does not work on files of an image and cannot be run here");
        return Err(Stop::Failed(2));
    }
    context.json = context.json || cli.json;
    context.complaints = Complaints::default();
    context.exit_bits = 0;
    let outer = context.set_quiet(context.globals.quiet || cli.globals.quiet);
    let ran = super::run(cli.command, context);
    context.set_quiet(outer);
    match ran {
        Ok(()) if !context.complaints.any() => Ok(()),
        Ok(()) | Err(Failure::Reported) => Err(Stop::Failed(context.failure_code())),
        Err(failure @ (Failure::PipeClosed | Failure::Interrupted)) => Err(Stop::Ends(failure)),
        Err(failure) => {
            context.complaints.say(&failure);
            Err(Stop::Failed(match failure {
                Failure::Usage(_) => 2,
                _ => context.failure_code(),
            }))
        }
    }
}

/// Checks a command line in which `{}` stands for a file in an image. Returns whether it may change an image.
pub(super) fn check(words: &[OsString]) -> Result<bool, String> {
    let line = std::iter::once("throughline".into()).chain(words.iter().cloned());
    let cli = Cli::try_parse_inner(line).map_err(|error| {
        let message = error.to_string();
        let first = message.lines().next().unwrap_or_default();
        first.trim_start_matches("error: ").to_owned()
    })?;
    if !is_for_files(&cli.command) {
        return Err("this command does not work on files of an image".to_owned());
    }
    // A copy writes to the host if its target is not `{}` and no word is a place in an image.
    let is_place = |word: &OsString| word.to_string_lossy().contains(":/");
    let goes_out = !words.iter().any(is_place) && words.last().is_some_and(|last| last != "{}");
    Ok(match cli.command {
        Command::Cp(_) => !goes_out,
        command => !is_reader(&command),
    })
}

/// Whether a command never changes an image.
fn is_reader(command: &Command) -> bool {
    matches!(
        command,
        Command::Info(_)
            | Command::Ls(_)
            | Command::Tree(_)
            | Command::Stat(_)
            | Command::Cat(_)
            | Command::Readlink(_)
            | Command::Getfattr(_)
            | Command::Getfacl(_)
            | Command::Lsattr(_)
            | Command::Df(_)
            | Command::Du(_)
    )
}

/// Whether a command works on the contents of images.
fn is_for_files(command: &Command) -> bool {
    use Command as C;
    let alone = matches!(
        command,
        C::Tune(_)
            | C::Replay(_)
            | C::Overlay(_)
            | C::Resize(_)
            | C::CompletePlace(_)
            | C::Shell(_)
    );
    command.works_on_images() && !alone
}
