//! Visits a place and, with `-R`, all that is below it, for commands that do one thing to each file.

use std::path::Path;

use throughline::{Dir, Metadata, Node, Volume};

use crate::context::Context;
use crate::images::Opened;
use crate::place::Place;
use crate::problem::{Doing, Failure, Result as Step};
use crate::walk::{Guard, sorted};

/// Called for each file.
type Visit<'v> =
    dyn FnMut(&mut Context, &Place, &Node, &Metadata) -> std::result::Result<(), Failure> + 'v;

/// Which files to visit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// Follow a link named on the command line.
    pub(crate) follow: bool,
    /// Visit all that is below a directory. Links there are skipped unless `links` is set.
    pub(crate) recursive: bool,
    /// Visit links below a directory, without following them.
    pub(crate) links: bool,
}

/// The inode of a path.
pub(crate) fn node(volume: &Volume, path: &Path, follow: bool) -> Step<Node> {
    let meta = match follow {
        true => volume.metadata(path)?,
        false => volume.symlink_metadata(path)?,
    };
    Ok(volume.node(meta.ino())?)
}

/// Visits the place, then what is below it, sorted by name. A failure below is reported, and the walk
/// continues.
pub(crate) fn each(
    context: &mut Context,
    opened: &Opened,
    reach: Reach,
    visit: &mut Visit<'_>,
) -> Result<(), Failure> {
    let place = &opened.place;
    let cannot = || format!("cannot access {place}");
    let node = node(&opened.volume, &opened.path, reach.follow).doing(cannot)?;
    let meta = node.metadata().doing(cannot)?;
    visit(context, place, &node, &meta)?;
    if reach.recursive && meta.is_dir() {
        let dir = opened.volume.open_dir(&opened.path).doing(cannot)?;
        below(context, &dir, place, reach, &mut Guard::default(), visit)?;
    }
    Ok(())
}

fn below(
    context: &mut Context,
    dir: &Dir,
    place: &Place,
    reach: Reach,
    guard: &mut Guard,
    visit: &mut Visit<'_>,
) -> Result<(), Failure> {
    let reading = || format!("cannot read directory {place}");
    guard
        .enter(dir.own_metadata().doing(reading)?.ino())
        .doing(reading)?;
    let entries = sorted(dir, context, reading);
    let visited = entries.and_then(|entries| {
        for entry in entries {
            context.interrupt().check()?;
            let place = place.join(&entry.name);
            let cannot = || format!("cannot access {place}");
            let one = entry.meta.doing(cannot).and_then(|meta| {
                if meta.is_symlink() && !reach.links {
                    return Ok(());
                }
                let node = dir.node(&entry.name).doing(cannot)?;
                visit(context, &place, &node, &meta)?;
                if meta.is_dir() {
                    let inner = dir.open_dir(&entry.name).doing(cannot)?;
                    below(context, &inner, &place, reach, guard, visit)?;
                }
                Ok(())
            });
            if let Err(failure) = one {
                context.complain(failure)?;
            }
        }
        Ok(())
    });
    guard.leave();
    visited
}
