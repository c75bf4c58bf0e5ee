//! The program `throughline-lab`: measures, compares, bisects and reports on I/O paths. One file per command;
//! the work is done in the library.
//!
//! ```text
//!  throughline lab run x            ─ exec ─►  this program, under the name throughline, same words
//!  throughline-lab run x            is throughline lab run x
//! ```
//!
//! Exit codes are those of `throughline`; several commands have codes of their own.
#![forbid(unsafe_code)]

mod args;
mod bisect;
mod compare;
mod context;
mod experiment;
mod founding;
mod gate;
mod generate;
mod list;
mod measure;
mod out_place;
mod report;
mod run;
mod sides;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use throughline_face::unanswered::Unanswered;
// What both programs share. Modules name it as if it were here.
use throughline_face::{
    arguments, command_line, interrupt, output, precious, problem, program, progress, text,
};

use crate::args::{Cli, Command};
use crate::context::Context;
use crate::problem::Failure;

fn main() -> ExitCode {
    program::start(command_line, Some("lab"))
}

fn command_line() -> ExitCode {
    let (globals, json, command) = match Cli::try_parse_from(arguments::all()) {
        Ok(cli) => (cli.globals, cli.json || cli.command.json(), cli.command),
        Err(error) => return command_line::misread(&error, Cli::command()),
    };
    if let Err(failure) = globals.start_log() {
        output::note(&failure.to_string());
        return Unanswered::here().failed.into();
    }
    let code = globals.clone().without_unused_overlay(|| {
        let mut context = Context::new(globals, json);
        let Command::Lab(args) = &command;
        let result = args.run(&mut context);
        conclude(result, &mut context)
    });
    code.into()
}

/// Reports how a command ended and returns its exit code.
fn conclude(result: Result<(), Failure>, context: &mut Context) -> u8 {
    let result = result.and_then(|()| context.out.flush());
    program::conclude(result, &context.complaints, context.exit_bits)
}
