//! Walks a directory tree of a possibly hostile image, without cycles and with bounded depth.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use throughline::{Dir, Metadata, Node, Volume};

use crate::context::Context;
use crate::images::Opened;
use crate::pattern::Purpose;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem, Result as Step};

/// Maximum nesting of directories. A path that the kernel accepts has at most this many components.
pub(crate) const MAX_DEPTH: usize = 2048;

/// Protects a walk from cycles: in a sound file system, each directory is reached once.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    seen: HashSet<u64>,
    depth: usize,
}

impl Guard {
    /// Must be called before the entries of a directory are read; `ino` is its inode. Every `Ok` must be
    /// followed by [`Guard::leave`].
    pub(crate) fn enter(&mut self, ino: u64) -> Step<()> {
        if self.depth >= MAX_DEPTH {
            return Err(
                Problem::new(format!("more than {MAX_DEPTH} nested directories"))
                    .with_next("start at a deeper directory"),
            );
        }
        if !self.seen.insert(ino) {
            return Err(Problem::new(format!(
                "corrupt: directory inode {ino} occurs a second time"
            ))
            .with_next("check with 'e2fsck -fn IMAGE', repair with 'e2fsck -f IMAGE'"));
        }
        self.depth += 1;
        Ok(())
    }

    /// Must be called after the last entry of a directory.
    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }
}

/// A directory entry and its inode's metadata.
pub(crate) struct Entry {
    /// The name.
    pub(crate) name: OsString,
    /// The inode's metadata; a symbolic link is not followed.
    pub(crate) meta: Step<Metadata>,
}

/// The entries of a directory, in stored order or sorted by name. Damage is reported with the operation from
/// `reading`, and the readable names are returned.
pub(crate) fn entries(
    dir: &Dir,
    sorted: bool,
    context: &Context,
    reading: impl Fn() -> String,
) -> Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    let volume = dir.volume();
    for entry in dir.entries().doing(&reading)? {
        match entry {
            Ok(entry) => {
                let name = entry.file_name();
                // By number: in a damaged directory, each search for a name reads all of it.
                let node = volume.node_by_ino(entry.ino());
                let meta = node.and_then(|node| node.metadata()).map_err(Problem::from);
                entries.push(Entry { name, meta });
            }
            Err(damage @ throughline::Error::Corrupt(_)) => {
                context.complain(Problem::from(damage).met(reading()))?;
            }
            Err(error) => return Err(Problem::from(error).met(reading())),
        }
    }
    if sorted {
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }
    Ok(entries)
}

/// Opens the directory that holds the last component of a path.
pub(crate) fn open_parent<'a>(volume: &Volume, path: &'a Path) -> Step<(Dir, &'a OsStr)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Problem::new(
            "the root and .. cannot be changed in this way",
        ));
    };
    Ok((volume.open_dir(parent)?, name))
}

/// A file that a walk has reached.
pub(crate) struct At<'a> {
    /// The named place where the walk began.
    pub(crate) start: &'a Opened,
    pub(crate) place: &'a Place,
    pub(crate) meta: &'a Metadata,
    /// Its directory and its name there; `None` for the start.
    pub(crate) parent: Option<(&'a Dir, &'a OsStr)>,
    /// The number of directories between it and the start, the start included.
    pub(crate) depth: usize,
    /// Whether it is the last visited entry of its directory.
    pub(crate) is_last: bool,
}

impl At<'_> {
    /// Its inode.
    pub(crate) fn node(&self) -> Result<Node, Failure> {
        let node = match self.parent {
            Some((dir, name)) => dir.node(name),
            None => self.start.volume.node_by_ino(self.meta.ino()),
        };
        node.doing(|| format!("cannot access {}", self.place))
    }

    /// Opens it as a directory.
    pub(crate) fn open_dir(&self) -> throughline::Result<Dir> {
        match self.parent {
            Some((dir, name)) => dir.open_dir(name),
            None => self.start.volume.open_dir(&self.start.path),
        }
    }

    /// The target of a symbolic link; `None` for others, and if it cannot be read.
    pub(crate) fn link_target(&self) -> Option<OsString> {
        let target = match self.parent {
            _ if !self.meta.is_symlink() => return None,
            Some((dir, name)) => dir.read_link(name),
            None => self.start.volume.read_link(&self.start.path),
        };
        Some(target.ok()?.into())
    }

    /// The path in the image.
    pub(crate) fn path(&self) -> &Path {
        match self.place {
            Place::Image { path, .. } => path,
            Place::Host(_) | Place::Stream => &self.start.path,
        }
    }

    /// Whether its name begins with a dot.
    pub(crate) fn is_hidden(&self) -> bool {
        self.parent.is_some_and(|(_, name)| is_hidden(name))
    }
}

/// Whether a name begins with a dot.
pub(crate) fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// What a command does with the files of a walk.
pub(crate) trait Visitor {
    /// Whether the entries of a directory are visited sorted by name.
    fn sorted(&self) -> bool {
        true
    }

    /// Whether to visit an entry of a directory.
    fn visits(&self, _name: &OsStr, _meta: &Metadata) -> bool {
        true
    }

    /// Called before the contents of a directory. Returns whether to visit them.
    fn before(&mut self, context: &mut Context, at: &At<'_>) -> Result<bool, Failure>;

    /// Called after the contents of a directory, whether or not they were visited.
    fn after(&mut self, _: &mut Context, _: &At<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether to end the walk.
    fn ended(&self) -> bool {
        false
    }
}

/// Visits a place and everything below it. A failure below is reported, and the walk continues. `follow`:
/// whether a symbolic link at the place itself is followed.
pub(crate) fn walk(
    context: &mut Context,
    start: &Opened,
    follow: bool,
    visitor: &mut impl Visitor,
) -> Result<(), Failure> {
    let place = &start.place;
    let meta = start
        .metadata(follow)
        .doing(|| format!("cannot access {place}"))?;
    let at = At {
        start,
        place,
        meta: &meta,
        parent: None,
        depth: 0,
        is_last: true,
    };
    visit(context, &at, &mut Guard::default(), visitor)
}

fn visit(
    context: &mut Context,
    at: &At<'_>,
    guard: &mut Guard,
    visitor: &mut impl Visitor,
) -> Result<(), Failure> {
    context.interrupt().check()?;
    if visitor.before(context, at)?
        && at.meta.is_dir()
        && let Err(failure) = inside(context, at, guard, visitor)
    {
        context.complain(failure)?;
    }
    visitor.after(context, at)
}

fn inside(
    context: &mut Context,
    at: &At<'_>,
    guard: &mut Guard,
    visitor: &mut impl Visitor,
) -> Result<(), Failure> {
    let reading = || format!("cannot read directory {}", at.place);
    let dir = at
        .open_dir()
        .doing(|| format!("cannot open directory {}", at.place))?;
    guard.enter(at.meta.ino()).doing(reading)?;
    let visited = each_entry(context, at, &dir, guard, visitor);
    guard.leave();
    visited
}

fn each_entry(
    context: &mut Context,
    at: &At<'_>,
    dir: &Dir,
    guard: &mut Guard,
    visitor: &mut impl Visitor,
) -> Result<(), Failure> {
    let reading = || format!("cannot read directory {}", at.place);
    let mut visited = Vec::new();
    for Entry { name, meta } in entries(dir, visitor.sorted(), context, reading)? {
        match meta.doing(|| format!("cannot access {}", at.place.join(&name))) {
            Ok(meta) if visitor.visits(&name, &meta) => visited.push((name, meta)),
            Ok(_) => {}
            Err(failure) => context.complain(failure)?,
        }
    }
    let count = visited.len();
    for (number, (name, meta)) in (1..).zip(&visited) {
        if visitor.ended() {
            break;
        }
        let at = At {
            start: at.start,
            place: &at.place.join(name),
            meta,
            parent: Some((dir, name)),
            depth: at.depth + 1,
            is_last: number == count,
        };
        if let Err(failure) = visit(context, &at, guard, visitor) {
            context.complain(failure)?;
        }
    }
    Ok(())
}

/// Which files a command visits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// What the command does with them, which decides whether patterns are expanded.
    pub(crate) purpose: Purpose,
    /// Follow a link named on the command line.
    pub(crate) follow: bool,
    /// Visit everything below a directory. Links there are skipped unless `links` is set.
    pub(crate) recursive: bool,
    /// Visit links below a directory, without following them.
    pub(crate) links: bool,
}

impl Reach {
    /// Follows links named on the command line, and skips those below a directory.
    pub(crate) fn files(recursive: bool, purpose: Purpose) -> Reach {
        Reach {
            purpose,
            follow: true,
            recursive,
            links: false,
        }
    }
}

struct Each<F> {
    reach: Reach,
    visit: F,
}

impl<F> Visitor for Each<F>
where
    F: FnMut(&mut Context, &At<'_>) -> Result<(), Failure>,
{
    fn visits(&self, _: &OsStr, meta: &Metadata) -> bool {
        self.reach.links || !meta.is_symlink()
    }

    fn before(&mut self, context: &mut Context, at: &At<'_>) -> Result<bool, Failure> {
        (self.visit)(context, at)?;
        Ok(self.reach.recursive)
    }
}

/// Visits each place, and the files below it that `reach` selects.
pub(crate) fn each(
    context: &mut Context,
    places: &[Place],
    reach: Reach,
    visit: impl FnMut(&mut Context, &At<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut each = Each { reach, visit };
    context.each_opened(places, reach.purpose, |context, opened| {
        walk(context, opened, reach.follow, &mut each)
    })
}
