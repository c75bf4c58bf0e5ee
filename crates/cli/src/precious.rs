//! Protects host files from being overwritten by mistake: those that hold an ext volume, and those that are
//! open as an image or a disk.
//!
//! `cp FILE disk.img` without `:/` would destroy the image.

use std::path::Path;

use throughline::{EngineChoice, Error, OpenOptions, Reason};
use throughline_face::precious::may_hold_volume;
pub(crate) use throughline_face::precious::{check_output, holds_ext, open};

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
