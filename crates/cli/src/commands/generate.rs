//! `completions` and `man`: made from the command line's own description.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

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
    /// A directory for all pages; without it, the main page goes to standard output
    dir: Option<PathBuf>,
}

/// Prints a shell's completions.
pub(crate) fn completions(args: &CompletionsArgs, context: &mut Context) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "throughline", &mut text);
    context.out.bytes(&text)
}

/// Writes the manual pages.
pub(crate) fn man(args: &ManArgs, context: &mut Context) -> Result<(), Failure> {
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command())
            .render(&mut page)
            .doing(|| "cannot make the page")?;
        return context.out.bytes(&page);
    };
    let cannot = || format!("cannot write manual pages to {}", quote(dir));
    std::fs::create_dir_all(dir).doing(cannot)?;
    clap_mangen::generate_to(Cli::command(), dir).doing(cannot)
}
