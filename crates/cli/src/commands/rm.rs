//! `rm`.

use std::ffi::OsString;

use clap::Args;
use rustix::io::Errno;
use throughline::Dir;

use crate::context::Context;
use crate::images::Opened;
use crate::pattern::{Glob, unexpanded};
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use crate::walk::{Guard, open_parent};

/// Arguments of `rm`.
#[derive(Args, Debug)]
pub(crate) struct RmArgs {
    /// Files in images; with -r or -d, also directories
    #[arg(required_unless_present = "force", value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Remove directories and their contents
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Ignore files that do not exist
    #[arg(short, long)]
    force: bool,
    /// Remove empty directories
    #[arg(short, long)]
    dir: bool,
    /// Print what was removed
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    glob: Glob,
}

/// Number of names read from a directory before they are removed. This bounds memory, and no listing is open
/// during the removal.
const BATCH: usize = 4096;

/// Removes each place.
pub(crate) fn run(args: &RmArgs, context: &mut Context) -> Result<(), Failure> {
    context.each_opened(
        &args.places,
        args.glob.changes(),
        |context, opened| match remove_place(args, context, opened) {
            Err(failure) if args.force && failure.errno() == Some(Errno::NOENT) => {
                if let Some(next) = unexpanded(&opened.volume, &opened.path) {
                    context
                        .complaints
                        .note(&format!("{}: {next}", opened.place));
                }
                Ok(())
            }
            other => other,
        },
    )
}

fn remove_place(args: &RmArgs, context: &mut Context, opened: &Opened) -> Result<(), Failure> {
    let (path, place) = (&opened.path, &opened.place);
    let cannot = || format!("cannot remove {place}");
    if matches!(
        path.components().next_back(),
        Some(std::path::Component::RootDir | std::path::Component::ParentDir)
    ) || path.as_os_str().as_encoded_bytes().ends_with(b"/.")
    {
        return Err(Problem::new("refusing to remove the root, '.' or '..'")
            .with_next("name the entries to remove, or make a new file system: throughline mkfs")
            .met(cannot()));
    }
    let (dir, name) = open_parent(&opened.volume, path).doing(cannot)?;
    // A trailing slash requires a directory.
    if path.as_os_str().as_encoded_bytes().ends_with(b"/")
        && !dir.symlink_metadata(name).doing(cannot)?.is_dir()
    {
        return Err(Problem::new("Not a directory").met(cannot()));
    }
    remove(args, context, &dir, name, place, &mut Guard::default()).map(|_gone| ())
}

/// Removes a name. Returns `false` if a file below it could not be removed; that failure was reported.
fn remove(
    args: &RmArgs,
    context: &mut Context,
    dir: &Dir,
    name: &std::ffi::OsStr,
    place: &Place,
    guard: &mut Guard,
) -> Result<bool, Failure> {
    context.interrupt().check()?;
    let cannot = || format!("cannot remove {place}");
    let meta = dir.symlink_metadata(name).doing(cannot)?;
    if !meta.is_dir() {
        dir.remove_file(name).doing(cannot)?;
        context.verbose_line(args.verbose, || format!("removed {place}"))?;
        return Ok(true);
    }
    if args.recursive {
        let inner = dir.open_dir(name).doing(cannot)?;
        guard.enter(meta.ino()).doing(cannot)?;
        let emptied = empty(args, context, &inner, place, guard);
        guard.leave();
        if !emptied? {
            return Ok(false);
        }
    } else if !args.dir {
        return Err(Problem::new("Is a directory")
            .with_next("-r removes it with its contents, -d only if it is empty")
            .met(cannot()));
    }
    dir.remove_dir(name).doing(cannot)?;
    context.verbose_line(args.verbose, || format!("removed directory {place}"))?;
    Ok(true)
}

/// Removes the contents of a directory. Returns `false` if something could not be removed.
fn empty(
    args: &RmArgs,
    context: &mut Context,
    dir: &Dir,
    place: &Place,
    guard: &mut Guard,
) -> Result<bool, Failure> {
    let reading = || format!("cannot read directory {place}");
    let mut stayed = 0usize;
    loop {
        // Names that could not be removed are read again, so read that many more, to make progress.
        let mut names: Vec<OsString> = Vec::new();
        for entry in dir
            .entries()
            .doing(reading)?
            .take(BATCH.saturating_add(stayed))
        {
            names.push(entry.doing(reading)?.file_name());
        }
        let full = names.len() >= BATCH.saturating_add(stayed);
        let before = names.len();
        let mut failed = 0usize;
        for name in names {
            match remove(args, context, dir, &name, &place.join(&name), guard) {
                Ok(true) => {}
                Ok(false) => failed += 1,
                Err(failure) => {
                    failed += 1;
                    context.complain(failure)?;
                }
            }
        }
        if !full || failed == before {
            return Ok(failed == 0);
        }
        stayed = failed;
    }
}
