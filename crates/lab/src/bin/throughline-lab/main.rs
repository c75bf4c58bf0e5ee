//! The program `throughline-lab`: measures, compares, bisects and reports on I/O paths. One file per command;
//! the work is done in the library.
//!
//! ```text
//!  throughline lab run x            ─ exec ─►  this program, under the name throughline, same words
//!  throughline explain lab run x    ─ exec ─►  likewise
//!  throughline-lab run x            is throughline lab run x
//! ```
//!
//! Exit codes are those of `throughline`; several commands have codes of their own.
#![forbid(unsafe_code)]

mod args;
mod bisect;
mod candidate;
mod compare;
mod context;
mod experiment;
mod founding;
mod gate;
mod generate;
mod list;
mod measure;
mod models;
mod out_place;
mod percent;
mod report;
mod run;
mod sides;
mod step;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use throughline_face::explain::{ExplainArgs, ours};
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
        let mut context = Context::new(globals, json, None);
        let result = match &command {
            Command::Lab(args) => args.run(&mut context),
            Command::Explain(args) => explain(args, &mut context),
        };
        conclude(result, &mut context)
    });
    code.into()
}

/// Reports how a command ended and returns its exit code.
fn conclude(result: Result<(), Failure>, context: &mut Context) -> u8 {
    let result = result.and_then(|()| context.out.flush());
    program::conclude(result, &context.complaints, context.exit_bits)
}

/// Traces the engine's events while a command of the lab measures in this process.
fn explain(args: &ExplainArgs, context: &mut Context) -> Result<(), Failure> {
    let parsed = || match Cli::try_parse_from(args.words())? {
        Cli {
            globals,
            json,
            command: Command::Lab(args),
        } if args.measures() => Ok(Some((globals, (json || args.json(), args)))),
        _ => Ok(None),
    };
    let (globals, out) = (&context.globals, &mut context.out);
    args.explain(context.json, out, &mut context.exit_bits, |exit_bits| {
        ours(
            parsed(),
            globals,
            exit_bits,
            |globals, (json, args), watch| {
                let mut explained = Context::new(globals, json, Some(watch));
                let result = args.run(&mut explained);
                conclude(result, &mut explained)
            },
        )
    })
}
