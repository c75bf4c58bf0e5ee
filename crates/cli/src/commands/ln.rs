//! `ln`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::io::Errno;
use throughline::Volume;

use super::mv::sources_and_target;
use crate::context::Context;
use crate::images::{Access, not_in_an_image};
use crate::pattern::Glob;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use throughline_forms::paths::{Missing, canonical, relative};

/// Arguments of `ln`.
#[derive(Args, Debug)]
pub(crate) struct LnArgs {
    /// Targets, then the link, or a directory for the links
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    /// The directory for the links; all other arguments are then targets
    #[arg(short, long, value_name = "IMAGE:/DIR")]
    target_directory: Option<Place>,
    /// Make symbolic links
    #[arg(short, long)]
    symbolic: bool,
    /// With -s: store a path relative to the link; a target without an image is relative to the link's
    /// directory
    #[arg(short, long, requires = "symbolic")]
    relative: bool,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
    /// Treat the last argument as the link's name, even if it is a directory or a link to one
    #[arg(short = 'n', long, visible_short_alias = 'T')]
    no_dereference: bool,
    /// Print what was linked
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    glob: Glob,
}

/// Creates each link.
pub(crate) fn run(args: &LnArgs, context: &mut Context) -> Result<(), Failure> {
    let places: Vec<Place> = args.places.iter().map(|word| Place::parse(word)).collect();
    let (targets, last) = sources_and_target(&places, args.target_directory.as_ref())?;
    let Place::Image { image, .. } = last else {
        return Err(not_in_an_image(last));
    };
    let opened = context.open(last, Access::Write)?;
    let purpose = args.glob.changes();
    let targets: Vec<Place> = match args.symbolic {
        // The target of a symbolic link is stored as written.
        true => {
            let words = args.places.iter().take(targets.len());
            words.map(|word| Place::parse_named(word)).collect()
        }
        false => context.expand(targets, purpose)?,
    };
    let into = !args.no_dereference && opened.is_dir();
    if !into && (targets.len() > 1 || args.target_directory.is_some()) {
        return Err(Problem::new("Not a directory").met(format!("target {last}")));
    }
    context.each(&targets, |context, target| {
        let stored: PathBuf = match target {
            Place::Image { image: other, path } if other == image => path.clone(),
            Place::Host(text) if args.symbolic => text.clone(),
            _ => {
                return Err(Failure::Usage(format!(
                    "{target} is not in the link's image: links cannot lead to another image"
                )));
            }
        };
        let link = match (into, stored.file_name()) {
            (false, _) => last.clone(),
            (true, Some(name)) => last.join(name),
            (true, None) => {
                return Err(Failure::Usage(format!(
                    "no link name can be derived from {target}: give one"
                )));
            }
        };
        make(args, &opened.volume, &stored, (&link, target))
            .map_err(|failure| purpose.explain(failure, &opened.volume, &stored))?;
        let arrow = if args.symbolic { "->" } else { "=>" };
        context.verbose_line(args.verbose, || format!("{link} {arrow} {target}"))
    })
}

/// Creates one link. `stored` is the target as the link refers to it.
fn make(
    args: &LnArgs,
    volume: &Volume,
    stored: &Path,
    (link, target): (&Place, &Place),
) -> Result<(), Failure> {
    let Place::Image { path, .. } = link else {
        return Err(not_in_an_image(link));
    };
    let stored = match args.relative {
        true => relative_to(volume, stored, path)
            .doing(|| format!("cannot determine the relative path from {link} to {target}"))?,
        false => stored.to_owned(),
    };
    let kind = if args.symbolic { "symbolic" } else { "hard" };
    let cannot = || format!("cannot create {kind} link {link} to {target}");
    let is_dir = || {
        volume
            .symlink_metadata(&stored)
            .is_ok_and(|meta| meta.is_dir())
    };
    if !args.symbolic && is_dir() {
        return Err(Problem::new("hard link not allowed for directory")
            .with_next("-s makes a symbolic link")
            .met(cannot()));
    }
    let make = || match args.symbolic {
        true => volume.symlink(&stored, path),
        false => volume.hard_link(&stored, path),
    };
    match make().doing(cannot) {
        Err(failure) if args.force && failure.errno() == Some(Errno::EXIST) => {
            replace(volume, &stored, path, args.symbolic).doing(cannot)?;
            make().doing(cannot)
        }
        other => other,
    }
}

/// The relative path from a link to its target. Symbolic links in both are resolved, as ln of coreutils does.
fn relative_to(volume: &Volume, target: &Path, link: &Path) -> crate::problem::Result<PathBuf> {
    let dir = link.parent().unwrap_or(Path::new("/"));
    let dir = canonical(volume, dir, Missing::Anything)?;
    let target = canonical(volume, &dir.join(target), Missing::Anything)?;
    Ok(relative(&dir, &target))
}

/// Removes an existing name to make room for a link. Refuses if that name is the target of the hard link.
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
