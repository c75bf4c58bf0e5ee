//! `readlink`.

use clap::Args;

use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::text::printable;

/// Arguments of `readlink`.
#[derive(Args, Debug)]
pub(crate) struct ReadlinkArgs {
    /// Symbolic links in images
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = place_parser())]
    places: Vec<Place>,
    /// No line end behind the target
    #[arg(short, long)]
    no_newline: bool,
}

/// Prints each target.
pub(crate) fn run(args: &ReadlinkArgs, context: &mut Context) -> Result<(), Failure> {
    context.each(&args.places, |context, place| {
        let opened = context.open(place, Access::Read)?;
        let target = opened
            .volume
            .read_link(&opened.path)
            .doing(|| format!("cannot read link {place}"))?;
        let shown = printable(target.as_os_str(), context.out.terminal).into_owned();
        if args.no_newline {
            context.out.bytes(&shown)
        } else {
            context.out.line(shown)
        }
    })
}
