//! `mkfs`, also under the names `mke2fs`, `mkfs.ext2`, `mkfs.ext3` and `mkfs.ext4`.

mod arguments;
mod filled;
mod inside;
pub(crate) mod names;
mod partition;
mod shown;

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use throughline::{Format, Made, MkfsError, MkfsOptions};
use throughline_forms::files;

pub(crate) use arguments::{MkfsArgs, VolumeArgs};
pub(crate) use shown::value;

use crate::commands::pack::note_clamped;
use crate::context::Context;
use crate::image_name::ImageName;
use crate::objects;
use crate::output::note;
use crate::precious;
use crate::problem::{Failure, Problem};
use crate::text::quote;

/// Seconds since 1970, instead of the time of the making, for builds that are to be reproducible.
const EPOCH: &str = "SOURCE_DATE_EPOCH";
/// The same for e2fsprogs.
const FAKE_TIME: &str = "E2FSPROGS_FAKE_TIME";

/// Makes a file system.
pub(crate) fn run(args: &MkfsArgs, context: &mut Context) -> Result<(), Failure> {
    let doing = || doing(args);
    objects::check_host(&args.image).map_err(|problem| problem.met(doing()))?;
    let open = context.globals.open_options(!args.dry_run)?;
    let found =
        partition::find(args, context.globals.offset, &open).map_err(|error| error.met(doing()))?;
    let (image, offset) = match &found {
        Some(found) => (&found.disk, found.start_bytes),
        None => (&args.image, context.globals.offset),
    };
    let mut options = args.options(offset)?;
    set_time(&mut options)?;
    if let Some(found) = &found {
        found.limit(args, &mut options)?;
    }
    if !args.as_mke2fs && !image.exists() {
        check_name(image, context.globals.image_format).map_err(|problem| problem.met(doing()))?;
    }
    let is_new_qcow2 = context.globals.image_format == Some(Format::Qcow2) && !image.exists();
    let (made, packed, partition) = if is_new_qcow2 {
        let made = inside::make_new(args, image, &mut options, &open)?;
        (made, None, None)
    } else if inside::is_virtual(image, &open).map_err(|error| error.met(doing()))? {
        let made = inside::make(args, (image, found.is_some()), &mut options, &open)?;
        (made, None, None)
    } else {
        if !args.dry_run && !args.is_forced() && !args.only_supers {
            refuse_occupied(&args.image, |file| match &found {
                Some(found) => files::partition_occupied(file, found.start_bytes),
                None => files::occupied(file, args.offset(offset)),
            })?;
        }
        let is_forced = args.is_forced() || args.as_mke2fs;
        if let Some(source) = &args.source {
            let packed = filled::make(args, options, source, is_forced, context)?;
            note_clamped(&packed, context.globals.quiet);
            let partition = packed.partition;
            (packed.made.clone(), Some(packed), partition)
        } else {
            options.overwrite(is_forced);
            let made = match (args.dry_run, args.disk.table()) {
                (true, None) => options.plan_for(image).map(|made| (made, None)),
                (true, Some(table)) => options.plan_disk(image, table).map(|made| (made, None)),
                (false, None) => options.make(image).map(|made| (made, None)),
                (false, Some(table)) => options
                    .make_disk(image, table)
                    .map(|(made, partition)| (made, Some(partition))),
            };
            let (made, partition) = made.map_err(|error| failure(error, args, doing))?;
            (made, None, partition)
        }
    };
    warn(&made, context.globals.quiet);
    shown::show(&made, packed.as_ref(), partition, args, context)
}

/// Refuses to make an image in another format than its name says, unless a format is given.
pub(crate) fn check_name(image: &Path, given: Option<Format>) -> Result<(), Problem> {
    let named = image.extension().and_then(OsStr::to_str);
    match named.and_then(|name| name.to_ascii_lowercase().parse::<Format>().ok()) {
        Some(named) if named != Format::Raw && given.is_none() => Err(Problem::new(format!(
            "a raw image would be made, but its name says {named}"
        ))
        .with_next(
            "--image-format raw makes it all the same, and mkfs --image-format qcow2 a qcow2 image; \
             'qemu-img convert' converts one",
        )),
        _ => Ok(()),
    }
}

fn doing(args: &MkfsArgs) -> String {
    format!("cannot make a file system in {}", quote(&args.image))
}

/// An error, as what it is: options and sizes that are refused are a wrong command line.
fn failure(error: MkfsError, args: &MkfsArgs, doing: impl Fn() -> String) -> Failure {
    match error {
        MkfsError::Invalid(why) | MkfsError::Unsupported(why) => {
            Failure::Usage(format!("{}: {why}", doing()))
        }
        other => problem(other, args).met(doing()),
    }
}

/// Takes the time from the environment, if it is there.
fn set_time(options: &mut MkfsOptions) -> Result<(), Failure> {
    if let Some(time) = epoch()? {
        options.time(time).reproducible(true);
    } else if let Some(time) = time_of(FAKE_TIME)? {
        options.time(time);
    }
    Ok(())
}

/// The time of `SOURCE_DATE_EPOCH`, if it is set.
pub(crate) fn epoch() -> Result<Option<SystemTime>, Failure> {
    time_of(EPOCH)
}

fn time_of(variable: &str) -> Result<Option<SystemTime>, Failure> {
    let Some(text) = std::env::var_os(variable).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let seconds = text.to_str().and_then(|text| text.parse::<u64>().ok());
    let time = seconds
        .and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    time.map(Some).ok_or_else(|| {
        Failure::Usage(format!(
            "{variable} is {}: a number of seconds since 1970 is needed",
            quote(&text)
        ))
    })
}

/// Refuses a target that holds something that is recognized.
fn refuse_occupied(
    image: &Path,
    occupied: impl FnOnce(&File) -> Option<String>,
) -> Result<(), Failure> {
    let disk = ImageName::of(image).file;
    match precious::open(&disk).and_then(|file| occupied(&file)) {
        None => Ok(()),
        Some(what) => Err(Problem::new(what)
            .with_next("-F overwrites it; all that it holds is lost")
            .met(format!("not making a file system in {}", quote(image)))),
    }
}

fn problem(error: MkfsError, args: &MkfsArgs) -> Problem {
    match error {
        MkfsError::Occupied(why) => {
            Problem::new(why).with_next("-F overwrites it; all that it holds is lost")
        }
        MkfsError::Open { source, path } if path == args.image => source.into(),
        MkfsError::Device(device) => throughline::Error::Device(device).into(),
        other => Problem::new(other.to_string()),
    }
}

/// Says what is allowed, but may surprise.
fn warn(made: &Made, quiet: bool) {
    if quiet {
        return;
    }
    if made.too_small_for_journal {
        note("no journal: the file system is too small for one");
    }
    if made.block_bytes > 4096 {
        note(&format!(
            "most kernels do not mount blocks of {} bytes, only up to 4096",
            made.block_bytes
        ));
    }
    if made.inode_bytes < 256 {
        note("inodes of 128 bytes hold no times after 2038");
    }
}
