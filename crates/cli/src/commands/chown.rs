//! `chown`.

use clap::Args;
use throughline::{Attributes, Metadata};

use crate::below::{Reach, each};
use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::owner::Owner;
use crate::place::Place;
use crate::problem::{Doing, Failure};

/// Arguments of `chown`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct ChownArgs {
    /// USER, USER:GROUP, USER: (the user's login group) or :GROUP, by number or host name
    #[arg(value_name = "OWNER")]
    owner: String,
    /// Files in images
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = place_parser())]
    places: Vec<Place>,
    /// Change symbolic links themselves, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Include the contents of directories; links in them are changed themselves
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print what was changed
    #[arg(short, long)]
    verbose: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Changes each place's owner.
pub(crate) fn run(args: &ChownArgs, context: &mut Context) -> Result<(), Failure> {
    let owner = Owner::parse(&args.owner).map_err(Failure::Usage)?;
    let reach = Reach {
        follow: !args.no_dereference,
        recursive: args.recursive,
        links: true,
    };
    let places = context.expand(&args.places, Access::Write)?;
    context.each(&places, |context, place| {
        let opened = context.open(place, Access::Write)?;
        each(
            context,
            &opened,
            reach,
            &mut |context, place, node, meta| {
                node.set_attributes(&change(owner, meta))
                    .doing(|| format!("cannot change the owner of {place}"))?;
                said(args, context, place, owner)
            },
        )
    })
}

/// The new owner. As in the kernel, a program loses its set-id bits.
fn change(owner: Owner, meta: &Metadata) -> Attributes {
    let mut attributes = Attributes::new();
    if let Some(uid) = owner.user {
        attributes = attributes.uid(uid);
    }
    if let Some(gid) = owner.group {
        attributes = attributes.gid(gid);
    }
    let mode = meta.mode();
    let keep_group_id = mode & 0o010 == 0; // set-gid without group execution once meant mandatory locking
    let dropped = mode & !(0o4000 | if keep_group_id { 0 } else { 0o2000 });
    if meta.is_file() && dropped != mode {
        attributes.mode(dropped)
    } else {
        attributes
    }
}

fn said(
    args: &ChownArgs,
    context: &mut Context,
    place: &Place,
    owner: Owner,
) -> Result<(), Failure> {
    if !args.verbose {
        return Ok(());
    }
    let number = |id: Option<u32>| id.map(|id| id.to_string()).unwrap_or_default();
    let group = owner
        .group
        .map(|group| format!(":{group}"))
        .unwrap_or_default();
    context.out.line(format!(
        "changed ownership of {place} to {}{group}",
        number(owner.user)
    ))
}
