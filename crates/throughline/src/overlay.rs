//! Overlays: what was changed of an image, in a qcow2 file of its own. [`ImageOptions::overlay`] makes and
//! uses them; here is what is done with them later.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use throughline_device::LockMode;
use throughline_image::{Format, ReadAt, VirtualDisk, overlay};

use crate::error::{Error, Result};
use crate::open::{Image, ImageOptions};

/// Is told how many bytes of how many are done; an error ends the work.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> io::Result<()>;

/// The image that an overlay names as its base; `None` if it names none.
///
/// # Errors
/// [`Error::Open`] if it is no qcow2 image, or cannot be read.
pub fn base(overlay: impl AsRef<Path>) -> Result<Option<PathBuf>> {
    let overlay = overlay.as_ref();
    overlay::base_of(overlay).map_err(|source| Error::open(overlay, source))
}

/// The bytes of the disk that an overlay has itself, in clusters. `image` says which base it may have.
///
/// # Errors
/// [`Error::Open`].
pub fn ranges(overlay: impl AsRef<Path>, image: &ImageOptions) -> Result<Vec<Range<u64>>> {
    let overlay = overlay.as_ref();
    let failed = |source| Error::open(overlay, source);
    let disk = disk(overlay, image, false).map_err(failed)?;
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((from, end)) = disk.next_own(at).map_err(failed)? {
        found.push(from..end);
        at = end;
    }
    Ok(found)
}

/// Writes the disk that an overlay shows to a new raw image, without its zeros. Overlay and base stay as they
/// are.
///
/// # Errors
/// [`Error::Open`]; of `progress`.
pub fn commit(
    overlay: impl AsRef<Path>,
    image: &ImageOptions,
    to: impl AsRef<Path>,
    progress: Progress<'_>,
) -> Result<()> {
    let (overlay, to) = (overlay.as_ref(), to.as_ref());
    let failed = |source| Error::open(overlay, source);
    let disk = disk(overlay, image, false).map_err(failed)?;
    let total = disk.len_bytes().map_err(failed)?;
    let mut progress = |done| progress(done, total);
    overlay::flatten(&disk, to, &mut progress).map_err(|source| Error::open(to, source))
}

/// Lays an overlay over another base, and keeps what it shows: bytes in which the bases differ are copied to
/// it. The bases are only read. If it is interrupted, the overlay still has its old base.
///
/// # Errors
/// [`Error::Open`]; of `progress`.
pub fn rebase(
    overlay: impl AsRef<Path>,
    image: &ImageOptions,
    base: impl AsRef<Path>,
    progress: Progress<'_>,
) -> Result<()> {
    let (overlay, base) = (overlay.as_ref(), base.as_ref());
    let failed = |source| Error::open(overlay, source);
    let of_base = |source| Error::open(base, source);
    let format = image.without_overlay().detected(base).map_err(of_base)?;
    // Locked against writers while it is read.
    let (new, _lock) = Image::locked(&image.without_overlay(), base).map_err(of_base)?;
    refuse_circle(overlay, base).map_err(of_base)?;
    let disk = disk(overlay, image, true).map_err(failed)?;
    let total = ReadAt::len_bytes(&disk).map_err(failed)?;
    if new.len_bytes().map_err(of_base)? > total {
        let why = "it is larger than the disk of the overlay, which would hide its end";
        return Err(of_base(io::Error::new(io::ErrorKind::InvalidInput, why)));
    }
    let mut progress = |done| progress(done, total);
    overlay::rebase((overlay, disk), (base, format, &new), &mut progress).map_err(failed)
}

/// The new base must not be the overlay, or laid over it.
fn refuse_circle(overlay: &Path, base: &Path) -> io::Result<()> {
    let overlay = overlay.canonicalize()?;
    let mut at = base.to_owned();
    for _ in 0..64 {
        let whole = at.canonicalize()?;
        if whole == overlay {
            let why = "it is the overlay itself, or laid over it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        match overlay::base_of(&whole) {
            Ok(Some(next)) => at = next,
            _ => return Ok(()),
        }
    }
    Ok(())
}

fn disk(overlay: &Path, image: &ImageOptions, write: bool) -> io::Result<VirtualDisk> {
    let image = image.without_overlay();
    if image.detected(overlay)? != Format::Qcow2 {
        let why = "it is no overlay: it is not a qcow2 image";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let lock = match write {
        true => LockMode::Exclusive,
        false => LockMode::Shared,
    };
    image.disk(overlay, write, lock)
}
