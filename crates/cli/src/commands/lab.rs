//! `lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::problem::Failure;

/// Arguments of `lab`.
#[derive(Args, Debug)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Run an experiment
    Run {
        /// Its name, from `lab list`
        name: String,
        /// Write the figures to this file as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// List the experiments
    List,
}

/// Runs the lab.
pub(crate) fn run(args: &LabArgs, _context: &mut Context) -> Result<(), Failure> {
    match &args.command {
        LabCommand::Run { name, json } => Err(Failure::plain(format!("{name}: {json:?}"))),
        LabCommand::List => Ok(()),
    }
}
