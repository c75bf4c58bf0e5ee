//! The `throughline` command: works on ext2, ext3 and ext4 images without root and without mounting.
//!
//! [`args`] parses the command line, [`place`] the places; each command is a file in [`commands`]. Every
//! failure is printed on standard error as `throughline: cannot …: reason`. The exit code is 0 for success, 1
//! for a failure (`replay`, `mount`, `umount`, `explain`, `pack --check` and several commands of `lab` have
//! codes of their own), 2 for a wrong command line, 130 after Ctrl-C, and 141 if the reader of our output has
//! closed the pipe.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod context;
mod copy;
mod dump;
mod image_name;
mod images;
mod mount;
mod names;
mod objects;
mod pattern;
mod place;
mod precious;
mod registry;
mod sandboxed;
mod sources;
mod texts;
mod unanswered;
mod unpacked;
mod walk;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

// What both programs share; as if it were here.
use throughline_face::{arguments, interrupt, logging, output, problem, progress, text};
use throughline_face::{command_line, program};
use tracing_subscriber::filter::LevelFilter;

use crate::commands::mkfs::names as mkfs;
use crate::context::Context;
use crate::problem::Failure;

fn main() -> ExitCode {
    program::start(run, unanswered::here)
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
            return unanswered::here().failed.into();
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
    let failed = context.failure_code();
    program::conclude(result, &context.complaints, failed, unanswered::here())
}

/// Prints clap's message: an error, help or the version.
fn misread(error: &clap::Error) -> ExitCode {
    command_line::misread(error, args::Cli::command(), unanswered::here())
}
