//! `lsattr`.

use std::ffi::OsStr;

use clap::Args;
use throughline::Metadata;

use crate::context::Context;
use crate::pattern::Purpose;
use crate::place::Place;
use crate::problem::Failure;
use crate::walk::{At, Visitor, walk};
use throughline_forms::flags::show;

/// Arguments of `lsattr`.
#[derive(Args, Debug)]
pub(crate) struct LsattrArgs {
    /// Files in images, and directories whose contents are shown; * and ? match names in images
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Show names that begin with a dot too
    #[arg(short, long)]
    all: bool,
    /// Show directories themselves, not their contents
    #[arg(short, long)]
    directory: bool,
    /// Include the contents of directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show the project ID too
    #[arg(short, long)]
    project: bool,
}

/// Shows the flags of each place.
pub(crate) fn run(args: &LsattrArgs, context: &mut Context) -> Result<(), Failure> {
    context.each_opened(&args.places, Purpose::Read, |context, opened| {
        walk(context, opened, true, &mut Lines(args))
    })
}

struct Lines<'a>(&'a LsattrArgs);

impl Visitor for Lines<'_> {
    fn visits(&self, _: &OsStr, meta: &Metadata) -> bool {
        !meta.is_symlink()
    }

    fn before(&mut self, context: &mut Context, at: &At<'_>) -> Result<bool, Failure> {
        let Lines(args) = self;
        let is_listed = at.depth == 0 && at.meta.is_dir() && !args.directory;
        if !is_listed && (args.all || !at.is_hidden()) {
            let node = at.node()?;
            let project = match args.project {
                true => format!("{:>5} ", node.project()),
                false => String::new(),
            };
            let line = format!("{project}{} ", show(node.flags()));
            context.out.bytes(line.as_bytes())?;
            context.out.name_line(at.place.to_shown())?;
        }
        Ok(is_listed || (args.recursive && !args.directory))
    }
}
