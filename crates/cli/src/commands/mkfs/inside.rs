//! `mkfs` in an image of a format, such as qcow2: the file system is made in the disk that the image holds.

use std::path::Path;

use throughline::internal::OpenImages;
use throughline::{Format, Made, MkfsError, MkfsOptions, OpenOptions};

use super::MkfsArgs;
use crate::problem::{Failure, Problem};

/// Whether the target is an image whose disk is not the file itself.
pub(super) fn is_virtual(image: &Path, open: &OpenOptions) -> Result<bool, Problem> {
    match image.symlink_metadata() {
        Ok(_) => Ok(open.format_of(image)? != Format::Raw),
        Err(_) => Ok(false),
    }
}

/// Makes the file system in a new qcow2 image, as large as the file system.
pub(super) fn make_new(
    args: &MkfsArgs,
    image: &Path,
    options: &mut MkfsOptions,
    open: &OpenOptions,
) -> Result<Made, Failure> {
    let doing = || super::doing(args);
    let planned = options.plan(None);
    let planned = planned.map_err(|error| super::failure(error, args, doing))?;
    if args.dry_run {
        return Ok(planned);
    }
    let bytes = planned.blocks.saturating_mul(planned.block_bytes.into());
    let made = open.make_qcow2(image, bytes);
    made.map_err(|error| Problem::from(error).met(doing()))?;
    make(args, (image, false), options, open).inspect_err(|_| {
        // What could not be made is not left behind.
        let _ = std::fs::remove_file(image);
    })
}

/// Makes the file system, where the options say.
pub(super) fn make(
    args: &MkfsArgs,
    (image, is_partition): (&Path, bool),
    options: &mut MkfsOptions,
    open: &OpenOptions,
) -> Result<Made, Failure> {
    let doing = || super::doing(args);
    let refused = |why: &str, next: &str| Err(Problem::new(why).with_next(next).met(doing()));
    if args.source.is_some() || args.disk.table().is_some() {
        return refused(
            "-d and --partition make new images, which are raw",
            "without them; or make a raw image and convert it: qemu-img convert -O qcow2",
        );
    }
    let failed = |error: throughline::Error| Problem::from(error).met(doing());
    let has_table = !is_partition && open.partitions(image).map_err(failed)?.is_some();
    if has_table && !args.is_forced() {
        return refused(
            "it is a disk with partitions",
            "IMAGE@2 means its second partition; -F overwrites the disk, and all that it holds is lost",
        );
    }
    let device = open.virtual_device(image, !args.dry_run).map_err(failed)?;
    let made = match (args.dry_run, device) {
        (_, None) => Err(MkfsError::Invalid("the image has changed".to_owned())),
        (true, Some(device)) => options.plan(Some(device.len_bytes())),
        (false, Some(device)) => options.overwrite(args.is_forced()).make_on(device),
    };
    made.map_err(|error| super::failure(error, args, doing))
}
