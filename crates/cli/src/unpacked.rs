//! Compressed images, as `disk.img.xz`: decompressed into a temporary file, once in a run, to be read.

use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use throughline::Format;
use throughline::archive::{is_compressed, unpack};
use throughline_face::globals::Globals;

use crate::images::Access;
use crate::precious;
use crate::problem::{Doing, Failure, Problem};
use crate::progress::Progress;
use crate::text::quote;

/// The decompressed images of this run, by device and inode of the compressed files.
#[derive(Default)]
pub(crate) struct Unpacked {
    files: Vec<((u64, u64), File)>,
}

impl Unpacked {
    /// The path by which an image is read: its own, or that of what it decompresses to.
    ///
    /// # Errors
    /// If it is compressed, and damaged, or to be written.
    pub(crate) fn path_of(
        &mut self,
        image: &Path,
        access: Access,
        globals: &Globals,
    ) -> Result<PathBuf, Failure> {
        let cannot = || format!("cannot open {}", quote(image));
        let Some((id, file)) = candidate(image, globals) else {
            return Ok(image.to_owned());
        };
        if access == Access::Write && is_compressed(&file) {
            return Err(read_only(image).met(cannot()));
        }
        if !self.files.iter().any(|(known, _)| *known == id) {
            let of = file.metadata().map_or(0, |meta| meta.len());
            let progress = Progress::bytes(Some(of), globals.quiet);
            progress.name("decompressing");
            let unpacked = unpack(&file, &|done| progress.at(done, of));
            progress.clear();
            match unpacked.doing(cannot)? {
                None => return Ok(image.to_owned()),
                Some(unpacked) => self.files.push((id, unpacked)),
            }
        }
        let known = self.files.iter().find(|(known, _)| *known == id);
        Ok(known.map_or(image.to_owned(), |(_, file)| {
            PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
        }))
    }
}

/// Whether a file begins as a compressed one, and is not known as something else.
pub(crate) fn is_compressed_image(image: &Path, globals: &Globals) -> bool {
    candidate(image, globals).is_some_and(|(_, file)| is_compressed(&file))
}

/// A file that may be a compressed image. The first bytes of an ext volume are anybody's.
fn candidate(image: &Path, globals: &Globals) -> Option<((u64, u64), File)> {
    let meta: Metadata = std::fs::metadata(image).ok()?;
    let is_named = globals
        .image_format
        .is_some_and(|format| format == Format::Raw);
    if !meta.is_file() || is_named || precious::holds_ext(image, globals.offset).is_some() {
        return None;
    }
    Some(((meta.dev(), meta.ino()), precious::open(image)?))
}

/// Why a compressed image is not opened.
pub(crate) fn read_only(image: &Path) -> Problem {
    Problem::new(
        "it is compressed: ls, cp, cat, tar and others read it, but it is not written or mounted",
    )
    .with_next(format!(
        "decompress it first: gunzip -k, unxz -k, unzstd or bunzip2 -k {}",
        quote(image)
    ))
}
