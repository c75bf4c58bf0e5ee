//! The `throughline` command: works on ext2, ext3 and ext4 images without root and without mounting.
//!
//! [`args`] parses the command line, [`place`] the places; each command is a file in [`commands`]. Every
//! failure is printed on standard error as `throughline: cannot …: reason`. The exit code is 0 for success, 1
//! for a failure (`replay`, `mount`, `umount`, `explain`, `pack --check` and several commands of `lab` have
//! codes of their own), 2 for a wrong command line, 130 after Ctrl-C, and 141 if the reader of our output has
//! closed the pipe.
#![forbid(unsafe_code)]

mod args;
mod arguments;
mod commands;
mod context;
mod copy;
mod dump;
mod image_name;
mod images;
mod interrupt;
mod logging;
mod mount;
mod names;
mod objects;
mod output;
mod pattern;
mod place;
mod precious;
mod problem;
mod progress;
mod registry;
mod sandboxed;
mod sources;
mod text;
mod texts;
mod unanswered;
mod unpacked;
mod walk;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use tracing_subscriber::filter::LevelFilter;

use crate::commands::mkfs::names as mkfs;
use crate::context::Context;
use crate::problem::Failure;
use crate::unanswered::Unanswered;

/// The recursion over directories, up to [`walk::MAX_DEPTH`] deep, needs more than the default of 8 MiB. Only
/// the pages in use take memory.
const STACK_BYTES: usize = 64 << 20;

/// The exit status that shells report for a program ended by a closed pipe.
const EXIT_PIPE_CLOSED: u8 = 141;

fn main() -> ExitCode {
    arguments::settle();
    // A write past a limit of file sizes (ulimit -f) is an error then, and does not end the program.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let work = std::thread::Builder::new()
        .name("throughline".into())
        .stack_size(STACK_BYTES)
        .spawn(run);
    match work.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic was already reported.
        Ok(Err(_panic)) => Unanswered::here().bug.into(),
        Err(error) => {
            output::note(&format!("cannot start a thread: {error}"));
            Unanswered::here().failed.into()
        }
    }
}

/// Runs as the program that its name selects.
fn run() -> ExitCode {
    let mut arguments = arguments::all();
    if let Some(code) = mount::keep().or_else(names::answer) {
        return code;
    }
    let name = arguments.next().unwrap_or_default();
    match Path::new(&name).file_name().and_then(OsStr::to_str) {
        Some(mount::fuse2fs::NAME) => mount::fuse2fs::main(arguments.collect()),
        Some(name) if mkfs::NAMES.contains(&name) => mkfs::main(name, arguments.collect()),
        Some(mount::HELPER_NAME) => mount::helper::main(arguments.collect()),
        _ => command_line(),
    }
}

fn command_line() -> ExitCode {
    let args::Cli {
        globals,
        json,
        command,
    } = match args::Cli::try_parse_from(arguments::all()) {
        Ok(cli) => cli,
        Err(error) => return misread(&error),
    };
    let json = json || command.json();
    if !matches!(command, args::Command::Mount(_)) {
        let level = globals.log.unwrap_or(LevelFilter::OFF);
        if let Err(failure) = logging::start(level, globals.log_file.as_deref()) {
            output::note(&failure.to_string());
            return Unanswered::here().failed.into();
        }
    }
    sandboxed::enter_for(&command, &globals);
    let new_overlay = globals.overlay.clone().filter(|overlay| !overlay.exists());
    let mut context = Context::new(globals, json);
    let result = commands::run(command, &mut context);
    let code = conclude(result, &mut context);
    if let Some(overlay) = new_overlay.filter(|_| code != 0) {
        // It was made by a command that could not open it.
        let _ = throughline::overlay::remove_unused(overlay);
    }
    ExitCode::from(code)
}

/// Ends a command: closes its images, reports its failure and returns its exit code.
fn conclude(result: Result<(), Failure>, context: &mut Context) -> u8 {
    // Even after a failure, write back what was done so far.
    context.close(result.is_err());
    let result = result.and_then(|()| context.out.flush());
    match result {
        Ok(()) if !context.complaints.any() => 0,
        Ok(()) => context.failure_code(),
        Err(Failure::PipeClosed) => EXIT_PIPE_CLOSED,
        Err(Failure::Reported) => context.failure_code(),
        Err(failure @ Failure::Interrupted) => {
            context.complaints.say(&failure);
            interrupt::EXIT_INTERRUPTED
        }
        Err(failure @ Failure::Usage(_)) => {
            context.complaints.say(&failure);
            Unanswered::here().usage
        }
        Err(failure) => {
            context.complaints.say(&failure);
            context.failure_code()
        }
    }
}

/// Prints clap's message: an error, help or the version.
fn misread(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    if error.kind() == ErrorKind::DisplayHelp
        && let Err(shown) = args::for_help().try_get_matches_from(arguments::all())
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
