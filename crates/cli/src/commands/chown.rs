//! `chown`.

use clap::Args;
use throughline::{Attributes, Metadata};
use throughline_forms::owner::Owner;

use crate::context::Context;
use crate::pattern::Glob;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::walk::{Reach, each};

/// Arguments of `chown`.
#[derive(Args, Debug)]
pub(crate) struct ChownArgs {
    /// USER, USER:GROUP, USER: (the user's login group) or :GROUP, by number or host name
    #[arg(value_name = "OWNER")]
    owner: String,
    /// Files in images
    #[arg(required = true, value_name = "IMAGE:/PATH")]
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
    #[command(flatten)]
    glob: Glob,
}

/// Changes each place's owner.
pub(crate) fn run(args: &ChownArgs, context: &mut Context) -> Result<(), Failure> {
    let owner = Owner::parse(&args.owner).map_err(Failure::Usage)?;
    let reach = Reach {
        purpose: args.glob.changes(),
        follow: !args.no_dereference,
        recursive: args.recursive,
        links: true,
    };
    each(context, &args.places, reach, |context, at| {
        at.node()?
            .set_attributes(&change(owner, at.meta))
            .doing(|| format!("cannot change the owner of {}", at.place))?;
        context.verbose_line(args.verbose, || {
            let number = |id: Option<u32>| id.map(|id| id.to_string());
            let user = number(owner.user).unwrap_or_default();
            let group = number(owner.group).map_or_else(String::new, |group| format!(":{group}"));
            format!("changed ownership of {} to {user}{group}", at.place)
        })
    })
}

/// The new owner. As in the kernel, a program loses its set-id bits.
fn change(owner: Owner, meta: &Metadata) -> Attributes {
    let attributes = attributes(owner);
    let mode = meta.mode();
    let keep_group_id = mode & 0o010 == 0; // set-gid without group execution once meant mandatory locking
    let dropped = mode & !(0o4000 | if keep_group_id { 0 } else { 0o2000 });
    if meta.is_file() && dropped != mode {
        attributes.mode(dropped)
    } else {
        attributes
    }
}

/// The owner as attributes to set.
pub(crate) fn attributes(owner: Owner) -> Attributes {
    let mut attributes = Attributes::new();
    if let Some(uid) = owner.user {
        attributes = attributes.uid(uid);
    }
    if let Some(gid) = owner.group {
        attributes = attributes.gid(gid);
    }
    attributes
}
