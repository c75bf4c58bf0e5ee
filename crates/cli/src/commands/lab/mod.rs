//! `lab`: one file a subcommand; the work itself is `throughline-lab`'s.

mod list;
mod run;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::problem::{Failure, Problem};

/// Arguments of `lab`.
#[derive(Args, Debug)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Run an experiment, its variants interleaved, and show the figures
    Run(run::RunArgs),
    /// List the experiments
    List,
    /// Run one variant alone, where an experiment has a profiler watch it
    #[command(hide = true)]
    Alone {
        /// The experiment
        name: String,
        /// What it says to itself
        arguments: Vec<String>,
    },
}

/// Does what `lab` was asked for.
pub(crate) fn run(args: &LabArgs, context: &mut Context) -> Result<(), Failure> {
    match &args.command {
        LabCommand::Run(args) => run::run(args, context),
        LabCommand::List => list::run(context),
        LabCommand::Alone { name, arguments } => throughline_lab::alone(name, arguments)
            .map_err(|error| Problem::new(error.to_string()).met(format!("cannot run {name}"))),
    }
}
