//! `chmod`.

use clap::Args;
use throughline::{Attributes, Dir, Metadata};

use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::mode::{ModeChange, show};
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::walk::Guard;

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
    let places = context.expand(&args.places, Access::Write)?;
    context.each(&places, |context, place| {
        let opened = context.open(place, Access::Write)?;
        let cannot = || format!("cannot change the mode of {place}");
        let meta = opened.volume.metadata(&opened.path).doing(cannot)?;
        let after = args
            .mode
            .apply(meta.mode(), meta.is_dir(), context.images.umask);
        opened
            .volume
            .set_attributes(&opened.path, &Attributes::new().mode(after))
            .doing(cannot)?;
        said(args, context, place, &meta, after)?;
        if args.recursive && meta.is_dir() {
            let dir = opened.volume.open_dir(&opened.path).doing(cannot)?;
            below(args, context, &dir, place, &mut Guard::default())?;
        }
        Ok(())
    })
}

fn below(
    args: &ChmodArgs,
    context: &mut Context,
    dir: &Dir,
    place: &Place,
    guard: &mut Guard,
) -> Result<(), Failure> {
    let reading = || format!("cannot read directory {place}");
    guard
        .enter(dir.own_metadata().doing(reading)?.ino())
        .doing(reading)?;
    let changed = inside(args, context, dir, place, guard);
    guard.leave();
    changed
}

fn inside(
    args: &ChmodArgs,
    context: &mut Context,
    dir: &Dir,
    place: &Place,
    guard: &mut Guard,
) -> Result<(), Failure> {
    let reading = || format!("cannot read directory {place}");
    for entry in dir.entries().doing(reading)? {
        let name = entry.doing(reading)?.file_name().to_owned();
        let place = place.join(&name);
        if let Err(failure) = one(args, context, dir, &name, &place, guard) {
            context.complain(failure)?;
        }
    }
    Ok(())
}

fn one(
    args: &ChmodArgs,
    context: &mut Context,
    dir: &Dir,
    name: &std::ffi::OsStr,
    place: &Place,
    guard: &mut Guard,
) -> Result<(), Failure> {
    context.interrupt().check()?;
    let cannot = || format!("cannot change the mode of {place}");
    let meta = dir.symlink_metadata(name).doing(cannot)?;
    if meta.is_symlink() {
        return Ok(());
    }
    let after = args
        .mode
        .apply(meta.mode(), meta.is_dir(), context.images.umask);
    dir.set_symlink_attributes(name, &Attributes::new().mode(after))
        .doing(cannot)?;
    said(args, context, place, &meta, after)?;
    if meta.is_dir() {
        let inner = dir.open_dir(name).doing(cannot)?;
        below(args, context, &inner, place, guard)?;
    }
    Ok(())
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
