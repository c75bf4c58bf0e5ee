//! The images that a command has opened.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline::internal::{HeldObject, OpenImages, VolumeLayers, hold_object};
use throughline::{
    Attributes, File, FileOptions, Format, Metadata, Node, NotExt, OpenOptions, Reason, Volume,
};
use throughline_explain::ours::{Watch, Watched, listening};
use throughline_face::globals::Globals;
use throughline_forms::files;

use crate::commands::replay::parts;
use crate::copy::LongCalls;
use crate::image_name::ImageName;
use crate::interrupt::Interrupt;
use crate::objects::{self, Identity};
use crate::output::{Complaints, note};
use crate::place::Place;
use crate::precious;
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;
use crate::unpacked::Unpacked;

/// End of the superblock of a volume.
const SUPERBLOCK_END: u64 = 2048;

/// An opened place in an image.
pub(crate) struct Opened {
    /// The volume.
    pub(crate) volume: Volume,
    /// The index of the image in this run.
    pub(crate) image: usize,
    /// The absolute path in the image.
    pub(crate) path: PathBuf,
    /// The place, for messages.
    pub(crate) place: Place,
}

impl Opened {
    /// Metadata of the inode at the path; with `follow`, of the target of a symbolic link.
    pub(crate) fn metadata(&self, follow: bool) -> crate::problem::Result<Metadata> {
        Ok(match follow {
            true => self.volume.metadata(&self.path)?,
            false => self.volume.symlink_metadata(&self.path)?,
        })
    }

    /// The inode at the path; with `follow`, the target of a symbolic link.
    pub(crate) fn node(&self, follow: bool) -> crate::problem::Result<Node> {
        Ok(self.volume.node_by_ino(self.metadata(follow)?.ino())?)
    }

    /// What a symbolic link at the path leads to; `None` for others.
    pub(crate) fn link_target(&self, meta: &Metadata) -> throughline::Result<Option<OsString>> {
        let read = || self.volume.read_link(&self.path);
        Ok(meta.is_symlink().then(read).transpose()?.map(Into::into))
    }

    /// Makes a file at the path that is not there, empty and with the default permissions.
    pub(crate) fn create(&self, attributes: Attributes, umask: u32) -> throughline::Result<File> {
        FileOptions::new()
            .create(true)
            .truncate(true)
            .attributes(attributes.mode(0o666 & !umask))
            .open(&self.volume, &self.path)
    }

    /// Whether it is a directory, or a symbolic link to one.
    pub(crate) fn is_dir(&self) -> bool {
        self.metadata(true).is_ok_and(|meta| meta.is_dir())
    }
}

/// The access to an image that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reading only.
    Read,
    /// Changing names, attributes or contents.
    Write,
}

struct OpenImage {
    /// Device, inode, and where the volume begins.
    id: (u64, u64, u64),
    path: PathBuf,
    volume: Volume,
    access: Access,
    /// The trace of its I/O, if the command is explained.
    watched: Option<Arc<Watched>>,
}

/// The images that are open.
pub(crate) struct Images {
    globals: Globals,
    open: Vec<OpenImage>,
    unpacked: Unpacked,
    /// The objects among the images.
    objects: HashMap<PathBuf, HeldObject>,
    /// The trace of all images, if the command is explained.
    pub(crate) watch: Option<Arc<Watch>>,
    /// Armed when the first image is opened for writing.
    pub(crate) interrupt: Interrupt,
    /// Permission bits that new names do not get.
    pub(crate) umask: u32,
}

impl Images {
    /// Creates the state without open images.
    pub(crate) fn new(globals: Globals, umask: u32) -> Images {
        Images {
            globals,
            open: Vec::new(),
            unpacked: Unpacked::default(),
            objects: HashMap::new(),
            watch: None,
            interrupt: Interrupt::default(),
            umask,
        }
    }

    /// Sets whether notes are suppressed.
    pub(crate) fn set_quiet(&mut self, quiet: bool) {
        self.globals.quiet = quiet;
    }

    /// Opens the image of a place, or returns it if it is already open. A command that both reads and writes
    /// an image must open it for writing first.
    pub(crate) fn open(&mut self, place: &Place, access: Access) -> Result<Opened, Failure> {
        let Place::Image { image, path } = place else {
            return Err(not_in_an_image(place));
        };
        let (number, volume) = self.open_image(image, access)?;
        Ok(Opened {
            volume,
            image: number,
            path: path.clone(),
            place: place.clone(),
        })
    }

    /// Opens an image by its path. Returns its index in this run, and the volume.
    pub(crate) fn open_image(
        &mut self,
        image: &Path,
        access: Access,
    ) -> Result<(usize, Volume), Failure> {
        self.open_with(image, access, false)
    }

    /// Opens an image that is in use elsewhere for reading, with the state on disk.
    pub(crate) fn open_in_use(&mut self, image: &Path) -> Result<Volume, Failure> {
        Ok(self.open_with(image, Access::Read, true)?.1)
    }

    fn open_with(
        &mut self,
        image: &Path,
        access: Access,
        in_use: bool,
    ) -> Result<(usize, Volume), Failure> {
        let shown_image = objects::shown(image);
        let cannot = || format!("cannot open {}", quote(&shown_image));
        let ImageName { file, partition } = ImageName::of(image);
        let host = Identity::of(&file).doing(cannot)?;
        if host.is_dir {
            return Err(Problem::new("Is a directory")
                .with_next("name an image file or a block device")
                .met(cannot()));
        }
        self.hold(&file)?;
        let shown = file;
        let file = (self.unpacked).path_of(&shown, access, &self.globals)?;
        let mut options = self.globals.open_options(access != Access::Read)?;
        options.partition(partition);
        let start_bytes = options
            .start_bytes(&file)
            .map_err(|error| Problem::from(error).met(cannot()))?;
        let id = (host.device, host.inode, start_bytes);
        if let Some(number) = self.open.iter().position(|open| open.id == id) {
            let open = &self.open[number];
            if access == Access::Write && open.access == Access::Read {
                return Err(open_for_reading().met(cannot()));
            }
            return Ok((number, open.volume.clone()));
        }
        let other = self
            .open
            .iter()
            .find(|open| (open.id.0, open.id.1) == (id.0, id.1));
        if let Some(other) = other
            && access == Access::Write
            && other.access == Access::Read
        {
            return Err(open_for_reading().met(cannot()));
        }
        if access == Access::Write && self.open.iter().all(|open| open.access == Access::Read) {
            self.interrupt.arm()?;
        }
        let watched = self.watched(&file);
        if in_use {
            options.no_replay(true).beside_writer(true);
        }
        options.listener(listening(watched.as_ref()));
        let opened = match other {
            Some(other) => options.open_beside(&file, &other.volume),
            None => options.open(&file),
        };
        let place = (self.globals.offset, "--offset ");
        let volume =
            opened.map_err(|error| not_opened(error, &shown, start_bytes, place).met(cannot()))?;
        if access == Access::Write && !self.globals.quiet && start_bytes != self.globals.offset {
            note_copied_table(&options, &file);
        }
        if let Some(watched) = &watched {
            watched.opened(&volume);
        }
        if access == Access::Read && !self.globals.quiet {
            note_holder(&file);
        }
        self.globals
            .check_bio_target(volume.disk().limits().logical_block_bytes)?;
        let mended = parts(volume.recovery());
        if !mended.is_empty() && !self.globals.quiet {
            note(&format!(
                "{} was not closed cleanly: {}",
                quote(&shown_image),
                mended.join("; ")
            ));
        }
        self.open.push(OpenImage {
            id,
            path: image.to_owned(),
            volume: volume.clone(),
            access,
            watched,
        });
        Ok((self.open.len() - 1, volume))
    }

    /// The path by which an image is read: its own, or that of what a compressed one decompresses to.
    pub(crate) fn read_path(&mut self, image: &Path) -> Result<PathBuf, Failure> {
        self.hold(image)?;
        self.unpacked.path_of(image, Access::Read, &self.globals)
    }

    /// Finds an object once in this run.
    fn hold(&mut self, image: &Path) -> Result<(), Failure> {
        if self.objects.contains_key(image) {
            return Ok(());
        }
        if let Some(held) = hold_object(image) {
            let cannot = || format!("cannot open {}", quote(objects::shown(image)));
            let held = held.map_err(|error| Problem::opening(&error).met(cannot()))?;
            self.objects.insert(image.to_owned(), held);
        }
        Ok(())
    }

    /// The trace of an image that is about to be opened, if the command is explained.
    pub(crate) fn watched(&self, image: &Path) -> Option<Arc<Watched>> {
        let shown = objects::shown(image);
        self.watch.as_ref().map(|watch| watch.path(&shown))
    }

    /// The path of long reads and writes: through the cache only if the user gave `--cache`.
    pub(crate) fn long_calls(&self) -> LongCalls {
        match self.globals.cache {
            Some(_) => LongCalls::Cached,
            None => LongCalls::Direct,
        }
    }

    /// Device and inode of each image file on the host.
    pub(crate) fn host_ids(&self) -> impl Iterator<Item = (u64, u64)> {
        self.open.iter().map(|open| (open.id.0, open.id.1))
    }

    /// All volumes.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.open.iter().map(|open| &open.volume)
    }

    /// Syncs all volumes.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        for open in &self.open {
            open.volume
                .sync()
                .doing(|| format!("cannot write back {}", quote(&open.path)))?;
        }
        Ok(())
    }

    /// Writes back and closes every image. Failures are reported. An overlay that the command has made for
    /// nothing, as it `failed`, is removed.
    pub(crate) fn close(&mut self, failed: bool, complaints: &Complaints) {
        let mut written = self.open.iter().filter(|it| it.access == Access::Write);
        if failed && !written.any(|it| is_changed(&it.volume)) {
            self.globals.unwanted.store(true, Ordering::Relaxed);
        }
        for open in self.open.drain(..) {
            if let Some(watched) = &open.watched {
                watched.closing(&open.volume);
            }
            if let Err(error) = open.volume.close() {
                let doing = match open.access {
                    Access::Read => format!("cannot close {}", quote(&open.path)),
                    Access::Write => format!("cannot write back {}", quote(&open.path)),
                };
                complaints.say(&Problem::from(error).met(doing));
            }
        }
    }
}

/// Whether something was changed since a volume was opened.
fn is_changed(volume: &Volume) -> bool {
    let status = volume.status();
    let journal = &status.journal;
    journal.commits > 0
        || journal.running_age_ms.is_some()
        || status.dirty.bytes > 0
        || status.writeback.runs > 0
}

/// Prints a note if the kernel may be changing an image that is open for reading.
pub(crate) fn note_holder(image: &Path) {
    if let Some(holder) = throughline::kernel_holder(image) {
        note(&format!(
            "{} is in use: {holder}; reading its present content on the disk",
            quote(image)
        ));
    }
}

/// The usage error for a place that must be in an image.
pub(crate) fn not_in_an_image(place: &Place) -> Failure {
    match place {
        Place::Host(path) if path.is_file() || objects::is_object(path) => Failure::Usage(format!(
            "{place} does not name a file in an image: write {} for its root",
            quote(format!("{}:/", path.display()))
        )),
        _ => Failure::Usage(format!(
            "{place} does not name a file in an image: write IMAGE:/path"
        )),
    }
}

fn open_for_reading() -> Problem {
    Problem::new("the image is already open for reading")
        .with_next("write to it first, or with another command")
}

/// Prints a note if the table of partitions is damaged, and its copy was used.
fn note_copied_table(options: &OpenOptions, disk: &Path) {
    if let Ok(Some(table)) = options.partitions(disk)
        && table.is_copy
    {
        note(&format!(
            "the table of partitions of {} is damaged; its copy at the end was used, which may be older",
            quote(disk)
        ));
    }
}

/// The problem of a volume that does not open, with the next step. `place` is the offset that the user gave,
/// and the option before it, such as `--offset `. If the volume begins elsewhere on `disk`, at `start_bytes`,
/// it is in a partition.
pub(crate) fn not_opened(
    error: throughline::Error,
    disk: &Path,
    start_bytes: u64,
    place: (u64, &str),
) -> Problem {
    let none = not_ext(&error, disk);
    let problem = in_partition(error.into(), disk, start_bytes, place.0);
    match none {
        Some(_) if start_bytes != place.0 => no_volume_in_partition(problem, disk, start_bytes),
        Some(none) => no_volume(problem, none, disk, place),
        None => problem,
    }
}

/// Whether what was opened holds no volume, rather than a damaged one.
fn not_ext(error: &throughline::Error, disk: &Path) -> Option<NotExt> {
    match error {
        throughline::Error::Caller(Reason::NotExt(why)) => Some(*why),
        // A file shorter than a sector cannot be read as a disk.
        throughline::Error::Device(_) => {
            let bytes = disk.metadata().ok()?.len();
            (bytes < SUPERBLOCK_END).then_some(NotExt::TooShort { bytes })
        }
        _ => None,
    }
}

/// If the volume is in a partition (it begins at `start_bytes`, not at the `offset` that the user gave),
/// names it in the next step: taken for the whole disk, that step would destroy the disk.
pub(crate) fn in_partition(
    problem: Problem,
    disk: &Path,
    start_bytes: u64,
    offset: u64,
) -> Problem {
    if start_bytes == offset {
        return problem;
    }
    let place = format!("{}?offset={start_bytes}", disk.display());
    Problem {
        next: problem.next.map(|next| next.replace("IMAGE", &place)),
        ..problem
    }
}

fn no_volume_in_partition(problem: Problem, disk: &Path, start_bytes: u64) -> Problem {
    let problem = Problem {
        reason: "the partition holds no ext file system".to_owned(),
        ..problem
    };
    let shown = "'throughline info IMAGE' shows what is in the partitions";
    let file = precious::open(disk);
    let is_raw = |file: &std::fs::File| Format::of(file).is_ok_and(|format| format == Format::Raw);
    let Some(found) = file
        .filter(is_raw)
        .and_then(|file| files::identify(&file, start_bytes))
    else {
        return problem.with_next(shown);
    };
    Problem {
        reason: format!(
            "the partition holds no ext file system: it is {}",
            found.what
        ),
        ..problem
    }
    .with_next(format!(
        "'losetup -P -f --show {}' makes a device of each partition; with that as IMAGE: {}",
        disk.display(),
        found.next
    ))
}

fn no_volume(
    problem: Problem,
    none: NotExt,
    image: &Path,
    (offset, option): (u64, &str),
) -> Problem {
    let file = precious::open(image);
    if let Some(file) = &file
        && let Ok(format) = Format::of(file)
        && format != Format::Raw
    {
        return Problem {
            reason: format!("the disk in the {format} image holds no ext file system"),
            ..problem
        }
        .with_next("'throughline info IMAGE' shows what is in it");
    }
    if let Some(found) = file.and_then(|file| files::identify(&file, offset)) {
        return Problem {
            reason: format!("not an ext2, ext3 or ext4 volume: it is {}", found.what),
            ..problem
        }
        .with_next(found.next);
    }
    let problem = Problem {
        reason: format!("no ext file system: {none}"),
        ..problem
    };
    if let NotExt::TooShort { bytes } = none {
        return problem.with_next(match bytes {
            0 => "make a file system on it: throughline mkfs IMAGE SIZE",
            _ => "check the name: this is another file than an image",
        });
    }
    let next = if offset == 0 {
        format!(
            "for an image inside a disk, give the start of its partition: \
             {option}2048s ('sfdisk -l' shows it)"
        )
    } else {
        let option = option.trim_end_matches(['=', ' ']);
        format!(
            "check {option}: 'sfdisk -l' shows where partitions start, in sectors (write them as 2048s)"
        )
    };
    problem.with_next(next)
}
