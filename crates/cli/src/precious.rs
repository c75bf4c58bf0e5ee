//! Protects host files from being overwritten by mistake: those that hold an ext volume, and those that are
//! open as an image or a disk.
//!
//! `cp FILE disk.img` without `:/` would destroy the image, as would a report, a record or a log written to
//! the wrong name.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use throughline::{EngineChoice, Error, OpenOptions, Reason};
use throughline_forms::files;

use crate::problem::{Failure, Problem};
use crate::text::quote;

/// Returns why a host file must not be overwritten, if so. `offset` is where a volume in it may begin, from
/// `--offset`.
pub(crate) fn reason(path: &Path, offset: u64) -> Option<String> {
    if let Some(volume) = holds_ext(path, offset) {
        return Some(volume.to_owned());
    }
    in_use(path)
}

/// Returns what has a file open as an image or a disk, according to its locks and the kernel.
pub(crate) fn in_use(path: &Path) -> Option<String> {
    if !may_hold_volume(path) {
        return None;
    }
    let opened = OpenOptions::new()
        .write(true)
        .engine(EngineChoice::Threads)
        .open_raw(path);
    match opened {
        Err(Error::Caller(Reason::Busy(who) | Reason::InUse { who, .. })) => Some(who),
        // Other errors are reported when the file is opened for writing.
        _ => None,
    }
}

/// Refuses to write secondary output (a report, a record, an explanation or a log) to a file that holds an
/// ext volume.
pub(crate) fn check_output(path: &Path) -> Result<(), Failure> {
    match holds_ext(path, 0) {
        Some(why) => Err(Problem::new(why)
            .with_next("name another file")
            .met(format!("not writing to {}", quote(path)))),
        None => Ok(()),
    }
}

/// The refusal to overwrite such a file, with the command that was probably meant.
pub(crate) fn refusal(path: &Path, why: String) -> Failure {
    let root = quote(format!("{}:/", path.display()));
    Problem::new(why)
        .with_next(format!(
            "to copy into the image, write {root}; --overwrite-image replaces the image itself"
        ))
        .met(format!("not writing to {}", quote(path)))
}

/// For a path through an image file, such as `disk.img/etc`: the place that was probably meant.
pub(crate) fn path_in_image(path: &Path) -> Option<String> {
    // Remove a trailing slash, which only a directory may have.
    let path = path.components().as_path();
    let image = path
        .ancestors()
        .find(|ancestor| std::fs::metadata(ancestor).is_ok())?;
    let inside = path.strip_prefix(image).ok()?;
    holds_ext(image, 0).map(|_| format!("{}:/{}", image.display(), inside.display()))
}

/// For a message: where a file of the host holds an ext volume.
pub(crate) fn holds_ext(path: &Path, offset: u64) -> Option<&'static str> {
    files::holds_ext(&open(path)?, offset)
}

/// Opens a regular file or a block device, which cannot block. If the file of an inherited descriptor cannot
/// be reopened, uses the descriptor itself.
pub(crate) fn open(path: &Path) -> Option<File> {
    if !may_hold_volume(path) {
        return None;
    }
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    File::options()
        .read(true)
        .custom_flags(nonblock)
        .open(path)
        .ok()
        .or_else(|| throughline::internal::given_file(path))
}

/// Whether this is a regular file or a block device. Opening anything else may have effects: the reader of a
/// fifo sees its end when the last writer closes it.
fn may_hold_volume(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| {
        let kind = meta.file_type();
        kind.is_file() || kind.is_block_device()
    })
}
