//! `chattr`.

use clap::Args;

use super::flags::Change;
use crate::below::{Reach, each};
use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure};

/// Arguments of `chattr`.
#[derive(Args, Debug)]
pub(crate) struct ChattrArgs {
    /// +FLAGS sets, -FLAGS clears, =FLAGS sets exactly these: i immutable, a append-only, d no dump,
    /// A no access times, S and D synchronous, and others of chattr(1)
    #[arg(value_name = "FLAGS", allow_hyphen_values = true, value_parser = Change::parse)]
    change: Change,
    /// Files in images
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = place_parser())]
    places: Vec<Place>,
    /// Include the contents of directories; symbolic links are skipped
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Set the project ID
    #[arg(short, long, value_name = "NUMBER")]
    project: Option<u32>,
}

/// Changes the flags of each place.
pub(crate) fn run(args: &ChattrArgs, context: &mut Context) -> Result<(), Failure> {
    let reach = Reach {
        follow: true,
        recursive: args.recursive,
        links: false,
    };
    let places = context.expand(&args.places, Access::Write)?;
    context.each(&places, |context, place| {
        let opened = context.open(place, Access::Write)?;
        each(context, &opened, reach, &mut |_, place, node, _| {
            let cannot = || format!("cannot change the flags of {place}");
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
    })
}
