//! `completions` and `man`, hidden commands. `throughline completions` and `throughline man` run them,
//! because that program does not have the description of the lab's command line.

use std::path::Path;

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use throughline_face::globals::Globals;
use throughline_face::manual;

use crate::args::Cli;
use crate::context::Context;
use crate::problem::{Doing, Failure};
use crate::text::quote;

/// The name of this program.
const PROGRAM: &str = "throughline-lab";
/// Examples and references, as [`throughline_face::manual`] reads them.
const TEXTS: &str = "[lab] throughline(1)\nList the experiments:\n  throughline lab list\n";

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell, context: &mut Context) -> Result<(), Failure> {
    let mut text = Vec::new();
    let lab = lab_of(&Cli::command()).name(PROGRAM);
    clap_complete::generate(shell, &mut Globals::augment_args(lab), PROGRAM, &mut text);
    // The code for bash spells this program's hyphen in two ways (clap_complete 4.6).
    let text =
        String::from_utf8_lossy(&text).replace("throughline__subcmd__lab", "throughline__lab");
    context.out.bytes(text.as_bytes())
}

/// Writes the manual pages.
pub(crate) fn man(dir: &Path) -> Result<(), Failure> {
    let mut whole = Cli::command().disable_help_subcommand(true);
    whole.build();
    let cannot = || format!("cannot write manual pages to {}", quote(dir));
    manual::write(dir, &lab_of(&whole), TEXTS).doing(cannot)
}

/// The description of `lab`.
fn lab_of(whole: &Command) -> Command {
    whole.find_subcommand("lab").cloned().unwrap_or_default()
}
