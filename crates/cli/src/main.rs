//! The `throughline` command: ext2, ext3 and ext4 images without root and without mounting.
//!
//! A command line is read into [`args`], places into [`place`]; each command is a file in [`commands`]. Every failure
//! goes to standard error as `throughline: cannot …: reason`; the exit code is 0 for success, 1 for a failure (`replay`
//! has codes of its own), 2 for a command line that asks for what cannot be, 130 after Ctrl-C, and 141 where the reader
//! of our output went away.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod context;
mod copy;
mod interrupt;
mod mode;
mod output;
mod owner;
mod place;
mod problem;
mod progress;
mod text;
mod time;
mod walk;

use std::process::ExitCode;

use clap::Parser;

use crate::context::Context;
use crate::problem::Failure;

/// Directories nest as deep as [`walk::MAX_DEPTH`]; their recursion needs more than the usual 8 MiB. Only what is used
/// becomes memory.
const STACK_BYTES: usize = 64 << 20;

/// What a shell reports for a program that a closed pipe ended.
const EXIT_PIPE_CLOSED: u8 = 141;

fn main() -> ExitCode {
    let work = std::thread::Builder::new()
        .name("throughline".into())
        .stack_size(STACK_BYTES)
        .spawn(run);
    match work.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(error) => {
            eprintln!("throughline: cannot start a thread: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> ExitCode {
    let args::Cli {
        globals,
        json,
        command,
    } = args::Cli::parse();
    let json = json || command.json();
    let mut context = Context::new(globals, json);
    let result = commands::run(command, &mut context);
    // Whatever happened, what was done so far goes to the disk.
    context.close();
    let result = result.and_then(|()| context.out.flush());
    match result {
        Ok(()) if !context.complaints.any() => ExitCode::SUCCESS,
        Ok(()) => context.failure_code(),
        Err(Failure::PipeClosed) => ExitCode::from(EXIT_PIPE_CLOSED),
        Err(failure @ Failure::Interrupted) => {
            context.complaints.say(&failure);
            ExitCode::from(interrupt::EXIT_INTERRUPTED)
        }
        Err(failure @ Failure::Usage(_)) => {
            context.complaints.say(&failure);
            ExitCode::from(2)
        }
        Err(failure) => {
            context.complaints.say(&failure);
            context.failure_code()
        }
    }
}
