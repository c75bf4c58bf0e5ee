//! Protects host files that hold an ext volume from being overwritten by mistake: by a report, a record or a
//! log that is written to the wrong name.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use throughline_forms::files;

use crate::problem::{Failure, Problem};
use crate::text::quote;

/// Refuses to write secondary output (a report, a record, an explanation or a log) to a file that holds an
/// ext volume.
pub fn check_output(path: &Path) -> Result<(), Failure> {
    match holds_ext(path, 0) {
        Some(why) => Err(Problem::new(why)
            .with_next("name another file")
            .met(format!("not writing to {}", quote(path)))),
        None => Ok(()),
    }
}

/// For a message: where a file of the host holds an ext volume.
pub fn holds_ext(path: &Path, offset: u64) -> Option<&'static str> {
    files::holds_ext(&open(path)?, offset)
}

/// Opens a regular file or a block device, which cannot block. If the file of an inherited descriptor cannot
/// be reopened, uses the descriptor itself.
pub fn open(path: &Path) -> Option<File> {
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
pub fn may_hold_volume(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| {
        let kind = meta.file_type();
        kind.is_file() || kind.is_block_device()
    })
}
