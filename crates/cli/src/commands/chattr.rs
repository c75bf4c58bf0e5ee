//! `chattr`.

use clap::Args;

use crate::context::Context;
use crate::pattern::Glob;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::walk::{Reach, each};
use throughline_forms::flags::Change;

/// Arguments of `chattr`.
#[derive(Args, Debug)]
pub(crate) struct ChattrArgs {
    /// +FLAGS sets, -FLAGS clears, =FLAGS sets exactly these: i immutable, a append-only, d no dump,
    /// A no access times, S and D synchronous, and others of chattr(1)
    #[arg(value_name = "FLAGS", allow_hyphen_values = true, value_parser = Change::parse)]
    change: Change,
    /// Files in images
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Include the contents of directories; symbolic links are skipped
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Set the project ID
    #[arg(short, long, value_name = "NUMBER")]
    project: Option<u32>,
    #[command(flatten)]
    glob: Glob,
}

/// Changes the flags of each place.
pub(crate) fn run(args: &ChattrArgs, context: &mut Context) -> Result<(), Failure> {
    let reach = Reach::files(args.recursive, args.glob.changes());
    each(context, &args.places, reach, |_, at| {
        let node = at.node()?;
        let cannot = || format!("cannot change the flags of {}", at.place);
        let before = node.flags();
        let after = args.change.apply(before);
        if after != before {
            node.set_flags(after).doing(cannot)?;
        }
        match args.project {
            Some(project) => node.set_project(project).doing(cannot),
            None => Ok(()),
        }
    })
}
