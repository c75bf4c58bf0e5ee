//! Turns the command line into single copies and finds the target name of each source.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use throughline::{Listener, Subscription};

use super::host::HostContent;
use super::host_folder::HostFolder;
use super::image::ImageFolder;
use super::latency::FirstSubmits;
use super::side::{Change, Content, Folder, Id, Meta};
use super::tree::{At, Walker, close};
use super::workers::{Shared, with_workers};
use super::{Follow, Options};
use crate::context::Context;
use crate::image_name::ImageName;
use crate::images::{Access, Images};
use crate::pattern::{Purpose, expand};
use crate::place::Place;
use crate::precious;
use crate::problem::{Doing, Failure, Problem};
use crate::progress::Progress;
use crate::text::quote;

/// Totals of a copy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Names created: files, directories, links and nodes.
    pub(crate) names: u64,
    /// Bytes of file contents.
    pub(crate) bytes: u64,
    /// Mean time from a read or write of an image to its first I/O on the device.
    pub(crate) first_submit: Option<Duration>,
}

/// A name in an open directory.
struct Located {
    folder: Box<dyn Folder>,
    name: OsString,
    place: Place,
}

impl Located {
    fn at(&self) -> At<'_> {
        At::new(self.folder.as_ref(), &self.name, &self.place)
    }
}

/// The target of the copy.
enum Target {
    /// Standard output.
    Stream,
    /// This directory; each source keeps its name.
    Into(Box<dyn Folder>, Place),
    /// This name.
    Name(Located),
}

/// Copies every source to the target. Failures of single files are reported as they occur.
///
/// `must_be_dir`: the target was given by -t.
pub(crate) fn copy(
    context: &mut Context,
    sources: &[Place],
    target: &Place,
    must_be_dir: bool,
    options: &Options,
) -> Result<Totals, Failure> {
    let Context {
        images,
        out,
        complaints,
        globals,
        ..
    } = context;
    // Open the target first: its image is opened for writing, and sources in the same image then use that
    // volume.
    if let Place::Image { .. } = target {
        images.open(target, Access::Write)?;
    }
    let sources = &expand(images, sources, Purpose::Read)?;
    let of_the_host = is_of_the_host(sources, target);
    let target = find_target(images, sources, target, must_be_dir, options)?;
    if of_the_host && !globals.quiet {
        complaints.note(
            "no image is involved: all paths are on the host (IMAGE:/path names a file in an \
            image)",
        );
    }
    for source in sources {
        if matches!(source, Place::Image { .. }) {
            // If a source cannot be opened, the error is reported when it is copied.
            let _ = images.open(source, Access::Read);
        }
    }
    let progress = Progress::bytes(single_len(images, sources, options), globals.quiet);
    let ids = images
        .host_ids()
        .map(|(dev, ino)| Id::Host(dev, ino))
        .collect();
    let (first_submits, watched): (Vec<Arc<FirstSubmits>>, Vec<Subscription>) = images
        .volumes()
        .filter(|_| options.stats)
        .map(|volume| {
            let seen = Arc::new(FirstSubmits::default());
            let listener = Arc::clone(&seen) as Arc<dyn Listener>;
            (seen, volume.subscribe(listener))
        })
        .unzip();
    let (interrupt, umask) = (images.interrupt.clone(), images.umask);
    let shared = Shared {
        interrupt: &interrupt,
        complaints,
        progress: &progress,
        sparse: options.sparse,
        preserve: options.preserve,
        bytes: AtomicU64::new(0),
    };
    let mut names = 0;
    let copied = with_workers(&shared, |queue| {
        let mut walker = Walker::new(options, umask, out, &shared, queue, ids);
        for source in sources {
            match one(images, &mut walker, source, &target) {
                Ok(()) => {}
                Err(failure) if failure.ends_command() => return Err(failure),
                Err(failure) => shared.complain(&failure),
            }
        }
        names = walker.names;
        Ok(())
    });
    progress.clear();
    drop(watched);
    copied.map(|()| Totals {
        names,
        bytes: shared.bytes.load(Ordering::Relaxed),
        first_submit: FirstSubmits::mean(first_submits.iter().map(|seen| &**seen)),
    })
}

/// Whether neither the sources nor the target are in an image.
fn is_of_the_host(sources: &[Place], target: &Place) -> bool {
    let in_image = |place: &Place| matches!(place, Place::Image { .. });
    matches!(target, Place::Host(_)) && !sources.iter().any(in_image)
}

/// The length of the file, if there is only one to copy, for the progress display.
fn single_len(images: &mut Images, sources: &[Place], options: &Options) -> Option<u64> {
    match sources {
        [only @ (Place::Host(_) | Place::Image { .. })] if !options.recursive => {
            let located = locate(images, only, Access::Read).ok()?;
            located
                .folder
                .meta(&located.name, true)
                .ok()
                .map(|meta| meta.len_bytes)
        }
        _ => None,
    }
}

fn find_target(
    images: &mut Images,
    sources: &[Place],
    target: &Place,
    must_be_dir: bool,
    options: &Options,
) -> Result<Target, Failure> {
    let many = sources.len() > 1 || must_be_dir;
    if *target == Place::Stream {
        if many || options.recursive {
            return Err(Failure::Usage(
                "only one file can be copied to standard output".into(),
            ));
        }
        return Ok(Target::Stream);
    }
    if let Some(image) = is_bare_image(target) {
        return Err(Failure::Usage(format!(
            "{target} does not name a file in an image: write {} for its root",
            quote(format!("{}:/", image.display()))
        )));
    }
    let located = locate(images, target, Access::Write)?;
    let found = located.folder.meta(&located.name, true);
    if let (Place::Host(path), Ok(meta)) = (target, &found)
        && !meta.is_dir()
        && !options.no_clobber
    {
        may_overwrite(path, options)?;
    }
    match found {
        Ok(meta) if meta.is_dir() && !options.exact_target => {
            let folder = open_folder(images, target, Access::Write, target)?;
            return Ok(Target::Into(folder, target.clone()));
        }
        Ok(meta) if !meta.is_dir() && is_folder_name(target) => {
            let problem = through_an_image(Problem::new("Not a directory"), target);
            return Err(problem.met(format!("cannot access {target}")));
        }
        Ok(_) => {}
        Err(problem) if problem.errno == Some(Errno::NOENT) => {
            if is_folder_name(target) && !options.recursive && !many {
                return Err(Problem::new("Not a directory")
                    .met(format!("cannot create regular file {target}")));
            }
        }
        Err(problem) => return Err(problem.met(format!("cannot access {target}"))),
    }
    if many {
        return Err(Problem::new("Not a directory")
            .with_next("make it first: throughline mkdir, or mkdir on the host")
            .met(format!("target {target}")));
    }
    Ok(Target::Name(located))
}

/// Refuses to overwrite a host file that holds an ext volume or is in use, unless the options allow it.
pub(super) fn may_overwrite(path: &Path, options: &Options) -> Result<(), Failure> {
    if options.overwrite_image {
        return Ok(());
    }
    match precious::reason(path, options.offset_bytes) {
        Some(why) => Err(precious::refusal(path, why)),
        None => Ok(()),
    }
}

/// The image of a place `IMAGE:` without the slash after it, or of `IMAGE@PARTITION` without `:/`, if no host
/// file has that name.
fn is_bare_image(place: &Place) -> Option<&Path> {
    let Place::Host(path) = place else {
        return None;
    };
    if path.symlink_metadata().is_ok() {
        return None;
    }
    let name = path.as_os_str().as_bytes();
    let without_colon = name.strip_suffix(b":");
    let image = Path::new(OsStr::from_bytes(without_colon.unwrap_or(name)));
    let name = ImageName::of(image);
    let is_image = match name.partition {
        None => without_colon.is_some() && name.file.is_file(),
        Some(_) => name.is_partition(),
    };
    is_image.then_some(image)
}

/// Whether the name ends with a slash.
fn is_folder_name(place: &Place) -> bool {
    place.to_argument().as_bytes().ends_with(b"/")
}

fn one(
    images: &mut Images,
    walker: &mut Walker<'_>,
    source: &Place,
    target: &Target,
) -> Result<(), Failure> {
    if *source == Place::Stream {
        let from = HostContent::stdin().doing(|| "cannot read standard input")?;
        return stream_in(walker, &from, target);
    }
    let mut from = locate(images, source, Access::Read)?;
    let name = from.name.clone();
    if is_folder_name(source) {
        // A trailing slash follows a symbolic link, regardless of the options.
        let cannot = || format!("cannot stat {source}");
        from.folder = from.folder.folder(&name, true).doing(cannot)?;
        from.name = OsString::from(".");
    }
    match target {
        Target::Stream => stream_out(walker, &from),
        Target::Name(to) => walker.source(from.at(), to.at()),
        Target::Into(folder, dir) => {
            let is_name = !matches!(name.as_bytes(), b"." | b"..");
            let (name, place) = if is_name {
                let place = dir.join(&name);
                (name, place)
            } else {
                (OsString::from("."), dir.clone())
            };
            walker.source(from.at(), At::new(folder.as_ref(), &name, &place))
        }
    }
}

fn stream_in(walker: &mut Walker<'_>, from: &dyn Content, target: &Target) -> Result<(), Failure> {
    let to = match target {
        Target::Name(to) => to,
        Target::Into(_, dir) => {
            return Err(Failure::Usage(format!(
                "standard input has no name: give the name of the file in {dir} too"
            )));
        }
        Target::Stream => {
            let to = HostContent::stdout().doing(|| "cannot write to standard output")?;
            walker.bytes(from, &to, &Place::Stream, &Place::Stream)?;
            return close(Box::new(to), &Place::Stream);
        }
    };
    let existing: Option<Meta> = match to.folder.meta(&to.name, false) {
        Ok(_) if walker.options.no_clobber => return Ok(()),
        Ok(existing) => Some(existing),
        Err(problem) if problem.errno == Some(Errno::NOENT) => None,
        Err(problem) => return Err(problem.met(format!("cannot stat {}", to.place))),
    };
    let file = walker.open_target(to.at(), 0o666, existing.as_ref())?;
    walker.names += 1;
    walker.bytes(from, file.as_ref(), &Place::Stream, &to.place)?;
    let change = walker.given(Change::default(), (0o666, false, existing.is_none()));
    if !change.is_empty() {
        let cannot = || format!("cannot set the attributes of {}", to.place);
        file.set(&change).doing(cannot)?;
    }
    close(file, &to.place)
}

fn stream_out(walker: &mut Walker<'_>, from: &Located) -> Result<(), Failure> {
    let cannot = || format!("cannot open {} for reading", from.place);
    let follow = walker.options.follow != Follow::Never;
    let meta = from.folder.meta(&from.name, follow).doing(cannot)?;
    if meta.is_dir() {
        return Err(Problem::new("Is a directory").met(cannot()));
    }
    let content = from.folder.open(&from.name, follow, &meta).doing(cannot)?;
    let to = HostContent::stdout().doing(|| "cannot write to standard output")?;
    walker.bytes(content.as_ref(), &to, &from.place, &Place::Stream)?;
    close(Box::new(to), &Place::Stream)
}

/// Splits a place into the directory that holds its last component, and that component. Without a last
/// component, returns the directory itself and `.`.
fn locate(images: &mut Images, place: &Place, access: Access) -> Result<Located, Failure> {
    let path: &Path = match place {
        Place::Image { path, .. } => path,
        Place::Host(path) => path,
        Place::Stream => return Err(Failure::Usage("a stream is not a file".into())),
    };
    if path.as_os_str().is_empty() {
        // An empty path is not the current directory: it probably comes from an unset variable in a script.
        let doing = match access {
            Access::Read => format!("cannot stat {place}"),
            Access::Write => format!("cannot create {place}"),
        };
        return Err(Problem::new("No such file or directory").met(doing));
    }
    let names_itself = path.as_os_str().as_bytes().ends_with(b"/.") || path == Path::new(".");
    let (parent, name) = match (path.components().next_back(), path.parent()) {
        (Some(Component::Normal(name)), Some(parent)) if !names_itself => {
            (parent.to_owned(), name.to_owned())
        }
        _ => (path.to_owned(), OsString::from(".")),
    };
    let parent = if parent.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        parent
    };
    let folder_place = match place {
        Place::Image { image, .. } => Place::Image {
            image: image.clone(),
            path: parent,
        },
        _ => Place::Host(parent),
    };
    let folder = open_folder(images, &folder_place, access, place)?;
    Ok(Located {
        folder,
        name,
        place: place.clone(),
    })
}

/// Opens a directory. Errors name `wanted`.
fn open_folder(
    images: &mut Images,
    folder: &Place,
    access: Access,
    wanted: &Place,
) -> Result<Box<dyn Folder>, Failure> {
    let cannot = || match access {
        Access::Read => format!("cannot stat {wanted}"),
        Access::Write => format!("cannot create {wanted}"),
    };
    match folder {
        Place::Host(path) => match HostFolder::open(path) {
            Ok(folder) => Ok(Box::new(folder)),
            Err(problem) => Err(through_an_image(problem, wanted).met(cannot())),
        },
        Place::Image { .. } => {
            let opened = images.open(folder, access)?;
            let dir = opened.volume.open_dir(&opened.path).doing(cannot)?;
            let folder = ImageFolder::new(dir, opened.image, images.umask, images.long_calls());
            Ok(Box::new(folder))
        }
        Place::Stream => Err(Failure::Usage("a stream is not a directory".into())),
    }
}

/// Adds a hint if `disk.img/etc` was given where `disk.img:/etc` was meant.
fn through_an_image(problem: Problem, wanted: &Place) -> Problem {
    let Place::Host(path) = wanted else {
        return problem;
    };
    match precious::path_in_image(path) {
        Some(meant) => problem.with_next(format!("to copy into the image, write {}", quote(meant))),
        None => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_at_the_end_means_a_directory() {
        assert!(is_folder_name(&Place::Host("a/".into())));
        assert!(is_folder_name(&Place::parse(OsStr::new("no-such.img:/"))));
        assert!(!is_folder_name(&Place::Host("a".into())));
    }
}
