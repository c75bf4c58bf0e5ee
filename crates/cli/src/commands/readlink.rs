//! `readlink`.

use clap::Args;

use crate::context::Context;
use crate::pattern::Purpose;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use throughline_forms::paths::{Missing, canonical};

/// Arguments of `readlink`.
#[derive(Args, Debug)]
pub(crate) struct ReadlinkArgs {
    /// Symbolic links in images; * and ? match names in images
    #[arg(required = true, value_name = "IMAGE:/PATH")]
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
    context.each_opened(&args.places, Purpose::Read, |context, opened| {
        let cannot = || format!("cannot read link {}", opened.place);
        let target = match missing {
            Some(missing) => canonical(&opened.volume, &opened.path, missing).doing(cannot)?,
            None => opened.volume.read_link(&opened.path).doing(cannot)?,
        };
        match args.no_newline {
            true => context.out.name(target),
            false => context.out.name_line(target),
        }
    })
}
