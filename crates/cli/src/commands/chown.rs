//! `chown`.

use clap::Args;
use throughline::{Attributes, Dir, Metadata};

use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::owner::Owner;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::walk::Guard;

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
    let places = context.expand(&args.places, Access::Write)?;
    context.each(&places, |context, place| {
        let opened = context.open(place, Access::Write)?;
        let cannot = || format!("cannot change the owner of {place}");
        let meta = if args.no_dereference {
            let meta = opened.volume.symlink_metadata(&opened.path).doing(cannot)?;
            opened
                .volume
                .set_symlink_attributes(&opened.path, &change(owner, &meta))
                .doing(cannot)?;
            meta
        } else {
            let meta = opened.volume.metadata(&opened.path).doing(cannot)?;
            opened
                .volume
                .set_attributes(&opened.path, &change(owner, &meta))
                .doing(cannot)?;
            meta
        };
        said(args, context, place, owner)?;
        if args.recursive && meta.is_dir() {
            let dir = opened.volume.open_dir(&opened.path).doing(cannot)?;
            below(args, context, owner, &dir, place, &mut Guard::default())?;
        }
        Ok(())
    })
}

/// The new owner; as in the kernel, a program loses its set-id bits with it.
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

fn below(
    args: &ChownArgs,
    context: &mut Context,
    owner: Owner,
    dir: &Dir,
    place: &Place,
    guard: &mut Guard,
) -> Result<(), Failure> {
    let reading = || format!("cannot read directory {place}");
    guard
        .enter(dir.own_metadata().doing(reading)?.ino())
        .doing(reading)?;
    let changed = inside(args, context, owner, dir, place, guard);
    guard.leave();
    changed
}

fn inside(
    args: &ChownArgs,
    context: &mut Context,
    owner: Owner,
    dir: &Dir,
    place: &Place,
    guard: &mut Guard,
) -> Result<(), Failure> {
    let reading = || format!("cannot read directory {place}");
    for entry in dir.entries().doing(reading)? {
        let name = entry.doing(reading)?.file_name().to_owned();
        let place = place.join(&name);
        if let Err(failure) = one(args, context, owner, dir, &name, &place, guard) {
            context.complain(failure)?;
        }
    }
    Ok(())
}

fn one(
    args: &ChownArgs,
    context: &mut Context,
    owner: Owner,
    dir: &Dir,
    name: &std::ffi::OsStr,
    place: &Place,
    guard: &mut Guard,
) -> Result<(), Failure> {
    context.interrupt().check()?;
    let cannot = || format!("cannot change the owner of {place}");
    let meta = dir.symlink_metadata(name).doing(cannot)?;
    dir.set_symlink_attributes(name, &change(owner, &meta))
        .doing(cannot)?;
    said(args, context, place, owner)?;
    if meta.is_dir() {
        let inner = dir.open_dir(name).doing(cannot)?;
        below(args, context, owner, &inner, place, guard)?;
    }
    Ok(())
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
