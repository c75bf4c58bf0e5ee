//! A place, and with `-R` all that is below it: for commands that do one thing to each.

use std::path::Path;

use throughline::{Dir, Metadata, Node, Volume};

use crate::context::Context;
use crate::images::Opened;
use crate::place::Place;
use crate::problem::{Doing, Failure, Result as Step};
use crate::walk::{Guard, sorted};

/// What is done to each.
type Visit<'v> =
    dyn FnMut(&mut Context, &Place, &Node, &Metadata) -> std::result::Result<(), Failure> + 'v;

/// How far it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// What a link named on the command line points to, not the link.
    pub(crate) follow: bool,
    /// All that is below a directory; links there are passed over, unless `links` says otherwise.
    pub(crate) recursive: bool,
    /// Links below a directory are visited themselves.
    pub(crate) links: bool,
}

/// The inode that a path stands for.
pub(crate) fn node(volume: &Volume, path: &Path, follow: bool) -> Step<Node> {
    let meta = match follow {
        true => volume.metadata(path)?,
        false => volume.symlink_metadata(path)?,
    };
    Ok(volume.node(meta.ino())?)
}

/// Visits the place, then what is below it, by name. A failure below is said, and the others go on.
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
