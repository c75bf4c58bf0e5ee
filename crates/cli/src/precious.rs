//! Files of the host that are not overwritten by mistake: those that hold an ext volume, and those that somebody has open as
//! an image or a disk.
//!
//! `cp FILE disk.img` with its `:/` forgotten would be the end of the image. So would be a report, a record or a log that is
//! written to the wrong name.

use std::path::Path;

use throughline::{EngineChoice, Error, OpenOptions, Reason};

use crate::formats::holds_ext;
use crate::problem::{Failure, Problem};
use crate::text::quote;

/// Why a host file is not to be overwritten; `None` where nothing speaks against it. `offset` is where a volume in it may
/// begin, as `--offset` says.
pub(crate) fn reason(path: &Path, offset: u64) -> Option<String> {
    if let Some(volume) = holds_ext(path, offset) {
        return Some(volume.to_owned());
    }
    in_use(path)
}

/// Who has a file open as an image or a disk, as far as locks and the kernel tell.
fn in_use(path: &Path) -> Option<String> {
    let opened = OpenOptions::new()
        .write(true)
        .engine(EngineChoice::Threads)
        .open_raw(path);
    match opened {
        Err(Error::Caller(Reason::Busy(who) | Reason::InUse { who, .. })) => Some(who),
        // Whoever may not open it hears of that when it is opened in earnest.
        _ => None,
    }
}

/// Refuses a file for what a command says beside its work: a report, a record, an account, a log.
pub(crate) fn check_output(path: &Path) -> Result<(), Failure> {
    match holds_ext(path, 0) {
        Some(why) => Err(Problem::new(why)
            .with_next("name another file")
            .met(format!("not writing to {}", quote(path)))),
        None => Ok(()),
    }
}

/// The refusal of a copy onto such a file, with what was probably meant.
pub(crate) fn refusal(path: &Path, why: String) -> Failure {
    let root = quote(format!("{}:/", path.display()));
    Problem::new(why)
        .with_next(format!(
            "to copy into the image, write {root}; --overwrite-image replaces the image itself"
        ))
        .met(format!("not writing to {}", quote(path)))
}

/// A path through a file that is an image, `disk.img/etc`: the place that was probably meant.
pub(crate) fn path_in_image(path: &Path) -> Option<String> {
    // Without a slash at its end, with which it could only be a directory.
    let path = path.components().as_path();
    let image = path
        .ancestors()
        .find(|ancestor| std::fs::metadata(ancestor).is_ok())?;
    let inside = path.strip_prefix(image).ok()?;
    holds_ext(image, 0).map(|_| format!("{}:/{}", image.display(), inside.display()))
}
