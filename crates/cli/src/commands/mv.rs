//! `mv`.

use std::path::Path;

use clap::Args;
use rustix::io::Errno;
use throughline::{RenameMode, Volume};

use crate::context::Context;
use crate::images::{Access, not_in_an_image};
use crate::pattern::Glob;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};

/// Arguments of `mv`.
#[derive(Args, Debug)]
pub(crate) struct MvArgs {
    /// Sources, then the target: a new name or a directory
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// The directory to move into; all other arguments are then sources
    #[arg(short, long, value_name = "IMAGE:/DIR")]
    target_directory: Option<Place>,
    /// Treat the target as a new name, even if it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// Do not overwrite existing files
    #[arg(short, long)]
    no_clobber: bool,
    /// Replace existing files (the default: there is never a prompt)
    #[arg(short, long)]
    force: bool,
    /// Swap source and target
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
    /// Print what was moved
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    glob: Glob,
}

/// Splits the places into sources and target: a directory or a single name.
pub(crate) fn sources_and_target<'a>(
    places: &'a [Place],
    target_directory: Option<&'a Place>,
) -> Result<(&'a [Place], &'a Place), Failure> {
    match (target_directory, places) {
        (Some(target), sources) => Ok((sources, target)),
        (None, [sources @ .., target]) if !sources.is_empty() => Ok((sources, target)),
        (None, [only, ..]) => Err(Failure::Usage(format!("missing destination after {only}"))),
        (None, []) => Err(Failure::Usage("missing source and destination".into())),
    }
}

/// Moves each source.
pub(crate) fn run(args: &MvArgs, context: &mut Context) -> Result<(), Failure> {
    let (sources, target) = sources_and_target(&args.places, args.target_directory.as_ref())?;
    let Place::Image { image, .. } = target else {
        return Err(leaves_the_image(target));
    };
    for source in sources {
        match source {
            Place::Image { image: other, .. } if other == image => {}
            _ => return Err(leaves_the_image(source)),
        }
    }
    let opened = context.open(target, Access::Write)?;
    let purpose = args.glob.changes();
    let sources = &context.expand(sources, purpose)?;
    let is_dir = !args.no_target_directory && opened.is_dir();
    let into = is_dir && !(args.exchange && sources.len() == 1 && args.target_directory.is_none());
    if !into && (sources.len() > 1 || args.target_directory.is_some()) {
        return Err(Problem::new("Not a directory").met(format!("target {target}")));
    }
    let mode = match (args.exchange, args.no_clobber) {
        (true, _) => RenameMode::Exchange,
        (_, true) => RenameMode::NoReplace,
        _ => RenameMode::Replace,
    };
    context.each(sources, |context, source| {
        let Place::Image { path, .. } = source else {
            return Err(not_in_an_image(source));
        };
        let cannot = |to: &Place| format!("cannot move {source} to {to}");
        let to = match (into, path.file_name()) {
            (false, _) => target.clone(),
            (true, Some(name)) => target.join(name),
            (true, None) => {
                return Err(Problem::new("the root and .. cannot be moved").met(cannot(target)));
            }
        };
        let Place::Image { path: to_path, .. } = &to else {
            return Err(not_in_an_image(&to));
        };
        let arrow = if args.exchange { "<->" } else { "->" };
        let report = || format!("renamed {source} {arrow} {to}");
        if mode == RenameMode::Replace && same_file(&opened.volume, path, to_path) {
            // If both are names of one file, rename(2) does nothing, but mv removes the first name.
            if same_name(&opened.volume, path, to_path) {
                return Err(Failure::plain(format!(
                    "{source} and {to} are the same file"
                )));
            }
            opened.volume.remove_file(path).doing(|| cannot(&to))?;
            return context.verbose_line(args.verbose, report);
        }
        match opened
            .volume
            .rename_with(path, to_path, mode)
            .doing(|| cannot(&to))
        {
            Err(failure) if args.no_clobber && failure.errno() == Some(Errno::EXIST) => {
                return Ok(());
            }
            other => other.map_err(|failure| purpose.explain(failure, &opened.volume, path))?,
        }
        context.verbose_line(args.verbose, report)
    })
}

/// Whether both are names of the same inode.
fn same_file(volume: &Volume, one: &Path, other: &Path) -> bool {
    let meta = |path| volume.symlink_metadata(path);
    matches!((meta(one), meta(other)), (Ok(one), Ok(other)) if one.ino() == other.ino())
}

/// Whether both are the same name in the same directory, however they are written.
fn same_name(volume: &Volume, one: &Path, other: &Path) -> bool {
    let parent = |path: &Path| {
        let parent = volume.metadata(path.parent()?).ok()?;
        Some((parent.ino(), path.file_name()?.to_owned()))
    };
    parent(one).is_none_or(|one| parent(other).is_none_or(|other| one == other))
}

fn leaves_the_image(place: &Place) -> Failure {
    Failure::Usage(format!(
        "{place} is not in the target's image, and mv moves inside one image only: \
         copy with 'throughline cp -a', then remove the source"
    ))
}
