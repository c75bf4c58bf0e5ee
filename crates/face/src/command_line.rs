//! What the command lines of both programs have in common.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args, Command};

use crate::globals::GLOBAL_OPTIONS;
use crate::unanswered::Unanswered;
use crate::{arguments, output};

/// The option `--json` after the command's name.
#[derive(Args, Debug, Clone, Copy)]
pub struct JsonFlag {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// The description of a command line. For a command with an option `-h` of its own, `-h` does not print help.
pub fn with_help(command: Command) -> Command {
    let is_taken = command
        .get_arguments()
        .any(|option| option.get_short() == Some('h'));
    let command = match is_taken {
        true => command.disable_help_flag(true).arg(
            Arg::new("help")
                .long("help")
                .help("Print help")
                .action(ArgAction::Help),
        ),
        false => command,
    };
    command.mut_subcommands(with_help)
}

/// Whether an option is global.
pub fn is_global(arg: &Arg) -> bool {
    arg.get_help_heading() == Some(GLOBAL_OPTIONS)
}

/// The same command with its global options hidden.
pub fn without_globals(command: Command) -> Command {
    command.mut_args(|arg| match is_global(&arg) {
        true => arg.hide(true),
        false => arg,
    })
}

/// A command line for help: global options have a page of their own.
fn for_help(mut command: Command) -> Command {
    fn noted(command: Command) -> Command {
        let note = "Options for all commands: throughline help options";
        let after = match command.get_after_long_help() {
            Some(text) => format!("{text}\n\n{note}"),
            None => note.to_owned(),
        };
        without_globals(command)
            .after_help(note)
            .after_long_help(after)
            .mut_subcommands(noted)
    }
    command.build();
    command.mut_subcommands(noted)
}

/// Prints clap's message about this process's command line, which is that of `command`: an error, help or the
/// version.
pub fn misread(error: &clap::Error, command: Command) -> ExitCode {
    if error.kind() == ErrorKind::DisplayHelp
        && let Err(shown) = for_help(command).try_get_matches_from(arguments::all())
    {
        let _ = shown.print();
        return ExitCode::SUCCESS;
    }
    output::misread(error);
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ => Unanswered::here().usage.into(),
    }
}

/// For tests: asserts that a command line has no mistakes, and returns the number of its commands.
///
/// clap gives a command the options of those above it, but one of its own with the same id hides them; if
/// their types differ, parsing panics.
pub fn assert_consistent(command: Command) -> usize {
    command.clone().debug_assert();
    let mut seen = 0;
    let mut waiting = vec![(command, BTreeSet::new())];
    while let Some((command, above)) = waiting.pop() {
        let ids = command.get_arguments().map(|one| one.get_id().to_string());
        let clash: Vec<String> = ids.filter(|id| above.contains(id)).collect();
        assert!(clash.is_empty(), "{}: {clash:?}", command.get_name());
        let global = command.get_arguments().filter(|one| one.is_global_set());
        let mut for_below: BTreeSet<String> = above;
        for_below.extend(global.map(|one| one.get_id().to_string()));
        for below in command.get_subcommands() {
            waiting.push((below.clone(), for_below.clone()));
        }
        seen += 1;
    }
    seen
}
