//! `completions` and `man`, generated from the command line's description.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::{complete, lab, manual};
use crate::args::Cli;
use crate::context::Context;
use crate::problem::{Doing, Failure};
use crate::text::quote;

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// A directory for all pages; without it, the main page is written to standard output
    dir: Option<PathBuf>,
}

/// Prints the completions for a shell.
pub(crate) fn completions(args: &CompletionsArgs, context: &mut Context) -> Result<(), Failure> {
    let lab = lab::output(&["completions".as_ref(), args.shell.to_string().as_ref()])?;
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "throughline", &mut text);
    context.out.bytes(&text)?;
    let places = match args.shell {
        Shell::Bash => complete::BASH,
        Shell::Zsh => complete::ZSH,
        Shell::Fish => complete::FISH,
        // For other shells, only options and commands are completed.
        _ => "",
    };
    context.out.bytes(places.as_bytes())?;
    context.out.bytes(&lab)
}

/// Writes the manual pages.
pub(crate) fn man(args: &ManArgs, context: &mut Context) -> Result<(), Failure> {
    let Some(dir) = &args.dir else {
        let page = manual::main_page().doing(|| "cannot make the page")?;
        return context.out.bytes(&page);
    };
    let cannot = || format!("cannot write manual pages to {}", quote(dir));
    std::fs::create_dir_all(dir).doing(cannot)?;
    manual::write_all(dir).doing(cannot)?;
    lab::output(&["man".as_ref(), dir]).map(drop)
}
