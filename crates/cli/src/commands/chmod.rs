//! `chmod`.

use clap::Args;
use throughline::{Attributes, Metadata};

use crate::below::{Reach, each};
use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::mode::{ModeChange, show};
use crate::place::Place;
use crate::problem::{Doing, Failure};

/// Arguments of `chmod`.
#[derive(Args, Debug)]
pub(crate) struct ChmodArgs {
    /// Octal like 0644, or clauses like u+x,g-w
    #[arg(value_name = "MODE", allow_hyphen_values = true, value_parser = ModeChange::parse)]
    mode: ModeChange,
    /// Files in images
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = place_parser())]
    places: Vec<Place>,
    /// Include the contents of directories; symbolic links are skipped
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print what was changed
    #[arg(short, long)]
    verbose: bool,
}

/// Changes each place's mode.
pub(crate) fn run(args: &ChmodArgs, context: &mut Context) -> Result<(), Failure> {
    let reach = Reach {
        follow: true,
        recursive: args.recursive,
        links: false,
    };
    let umask = context.images.umask;
    let places = context.expand(&args.places, Access::Write)?;
    context.each(&places, |context, place| {
        let opened = context.open(place, Access::Write)?;
        each(
            context,
            &opened,
            reach,
            &mut |context, place, node, meta| {
                let after = args.mode.apply(meta.mode(), meta.is_dir(), umask);
                node.set_attributes(&Attributes::new().mode(after))
                    .doing(|| format!("cannot change the mode of {place}"))?;
                said(args, context, place, meta, after)
            },
        )
    })
}

fn said(
    args: &ChmodArgs,
    context: &mut Context,
    place: &Place,
    meta: &Metadata,
    after: u32,
) -> Result<(), Failure> {
    if !args.verbose {
        return Ok(());
    }
    let letter = super::describe::letter(meta.file_type());
    let text = |mode: u32| format!("{mode:04o} ({})", show(letter, mode).split_off(1));
    context.out.line(format!(
        "mode of {place} changed from {} to {}",
        text(meta.mode()),
        text(after)
    ))
}
