//! `ln`.

use std::path::PathBuf;

use clap::Args;
use throughline::{Attributes, Volume};

use super::mv::sources_and_target;
use crate::context::{Context, place_parser};
use crate::images::{Access, not_in_an_image};
use crate::place::Place;
use crate::problem::{Doing, Failure, Kind, Problem};

/// Arguments of `ln`.
#[derive(Args, Debug)]
pub(crate) struct LnArgs {
    /// Targets, then the link, or a directory to make the links in
    #[arg(required = true, value_name = "PLACE", value_parser = place_parser())]
    places: Vec<Place>,
    /// The directory to make the links in; then all places are targets
    #[arg(short, long, value_name = "IMAGE:/DIR", value_parser = place_parser())]
    target_directory: Option<Place>,
    /// Symbolic links
    #[arg(short, long)]
    symbolic: bool,
    /// Replace what exists
    #[arg(short, long)]
    force: bool,
    /// The last place is the link's name even where it is a directory or a link to one
    #[arg(short = 'n', long, visible_short_alias = 'T')]
    no_dereference: bool,
    /// Say what was linked
    #[arg(short, long)]
    verbose: bool,
}

/// Makes each link.
pub(crate) fn run(args: &LnArgs, context: &mut Context) -> Result<(), Failure> {
    let (targets, last) = sources_and_target(&args.places, args.target_directory.as_ref())?;
    let Place::Image { image, .. } = last else {
        return Err(not_in_an_image(last));
    };
    let opened = context.open(last, Access::Write)?;
    let into = !args.no_dereference
        && opened
            .volume
            .metadata(&opened.path)
            .is_ok_and(|meta| meta.is_dir());
    if !into && (targets.len() > 1 || args.target_directory.is_some()) {
        return Err(Problem::new("Not a directory").met(format!("target {last}")));
    }
    context.each(targets, |context, target| {
        let stored: PathBuf = match target {
            Place::Image { image: other, path } if other == image => path.clone(),
            Place::Host(text) if args.symbolic => text.clone(),
            _ => {
                return Err(Failure::Usage(format!(
                    "{target} is not in the link's image: a link stays inside one image"
                )));
            }
        };
        let link = match (into, stored.file_name()) {
            (false, _) => last.clone(),
            (true, Some(name)) => last.join(name),
            (true, None) => {
                return Err(Failure::Usage(format!(
                    "{target} has no name to give to the link: write the link's name"
                )));
            }
        };
        let Place::Image { path, .. } = &link else {
            return Err(not_in_an_image(&link));
        };
        let kind = if args.symbolic { "symbolic" } else { "hard" };
        let cannot = || format!("cannot create {kind} link {link} to {target}");
        let make = |volume: &Volume| {
            if args.symbolic {
                volume.symlink(&stored, path, &Attributes::new())
            } else {
                volume.hard_link(&stored, path)
            }
        };
        if !args.symbolic
            && opened
                .volume
                .symlink_metadata(&stored)
                .is_ok_and(|meta| meta.is_dir())
        {
            return Err(Problem::new("hard link not allowed for directory")
                .with_next("-s makes a symbolic link")
                .met(cannot()));
        }
        let made = match make(&opened.volume).doing(cannot) {
            Err(failure) if args.force && failure.kind() == Some(Kind::Exists) => {
                replace(&opened.volume, &stored, path, args.symbolic).doing(cannot)?;
                make(&opened.volume).doing(cannot)
            }
            other => other,
        };
        made?;
        if args.verbose {
            let arrow = if args.symbolic { "->" } else { "=>" };
            context.out.line(format!("{link} {arrow} {target}"))?;
        }
        Ok(())
    })
}

/// Makes room for a link; the target of a hard link must stay.
fn replace(
    volume: &Volume,
    stored: &std::path::Path,
    link: &std::path::Path,
    symbolic: bool,
) -> crate::problem::Result<()> {
    if !symbolic && volume.symlink_metadata(stored)?.ino() == volume.symlink_metadata(link)?.ino() {
        return Err(Problem::new("they are the same file"));
    }
    Ok(volume.remove_file(link)?)
}
