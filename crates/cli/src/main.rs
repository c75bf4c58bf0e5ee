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
mod help;
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
mod unpacked;
mod walk;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use throughline_face::globals::Globals;
use throughline_face::unanswered::{Unanswered, called};
// What both programs share. Modules name it as if it were here.
use throughline_face::{arguments, interrupt, logging, output, problem, progress, text};
use throughline_face::{command_line, program};

use crate::commands::mkfs::names as mkfs;
use crate::context::Context;
use crate::problem::Failure;

fn main() -> ExitCode {
    program::start(run, None)
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
    // A mount has a log of its own.
    if !matches!(command, args::Command::Mount(_))
        && let Err(failure) = globals.start_log()
    {
        output::note(&failure.to_string());
        return Unanswered::here().failed.into();
    }
    sandboxed::enter_for(&command, &globals);
    let code = globals.clone().without_unused_overlay(|| {
        let mut context = Context::new(globals, json);
        let result = commands::run(command, &mut context);
        conclude(result, &mut context)
    });
    code.into()
}

/// Ends a command: closes its images, reports its failure and returns its exit code.
fn conclude(result: Result<(), Failure>, context: &mut Context) -> u8 {
    // Even after a failure, write back what was done so far.
    context.close(result.is_err());
    let result = result.and_then(|()| context.out.flush());
    program::conclude(result, &context.complaints, context.exit_bits)
}

/// Prints clap's message, an error, help or the version, or the page that was asked for.
fn misread(error: &clap::Error) -> ExitCode {
    let mut context = Context::new(Globals::default(), false);
    if let Some(page) = help::page() {
        let result = context.out.bytes(page.as_bytes());
        return conclude(result, &mut context).into();
    }
    if error.kind() == ErrorKind::DisplayHelp && called(&["help", "lab"]) {
        let result = commands::lab::run(&mut context);
        return conclude(result, &mut context).into();
    }
    command_line::misread(error, help::described())
}
