//! `readlink`.

use clap::Args;

use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::resolve::{Missing, canonical};
use crate::text::printable;

/// Arguments of `readlink`.
#[derive(Args, Debug)]
pub(crate) struct ReadlinkArgs {
    /// Symbolic links in images
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = place_parser())]
    places: Vec<Place>,
    /// Print the path without links, . and ..; all but the last component must exist
    #[arg(short = 'f', long)]
    canonicalize: bool,
    /// The same; all components must exist
    #[arg(short = 'e', long)]
    canonicalize_existing: bool,
    /// The same; no component need exist
    #[arg(short = 'm', long)]
    canonicalize_missing: bool,
    /// Print no newline after the target
    #[arg(short, long)]
    no_newline: bool,
}

/// Prints each target.
pub(crate) fn run(args: &ReadlinkArgs, context: &mut Context) -> Result<(), Failure> {
    let missing = if args.canonicalize_missing {
        Some(Missing::Anything)
    } else if args.canonicalize_existing {
        Some(Missing::Nothing)
    } else {
        args.canonicalize.then_some(Missing::Last)
    };
    let places = context.expand(&args.places, Access::Read)?;
    context.each(&places, |context, place| {
        let opened = context.open(place, Access::Read)?;
        let cannot = || format!("cannot read link {place}");
        let target = match missing {
            Some(missing) => canonical(&opened.volume, &opened.path, missing).doing(cannot)?,
            None => opened.volume.read_link(&opened.path).doing(cannot)?,
        };
        let shown = printable(target.as_os_str(), context.out.terminal).into_owned();
        if args.no_newline {
            context.out.bytes(&shown)
        } else {
            context.out.line(shown)
        }
    })
}
