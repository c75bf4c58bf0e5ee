//! Overlays: what was changed of an image, in a qcow2 file of its own. [`ImageOptions::overlay`] makes and
//! uses them; here is what is done with them later.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use throughline_device::{LockMode, OpenOptions as DeviceOptions};
use throughline_image::{ReadAt, VirtualDisk, overlay};

use crate::error::{Error, Result};
use crate::open::{Image, ImageOptions, base_of, not_opened, object};

/// Is told how many bytes of how many are done; an error ends the work.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> io::Result<()>;

/// The image that an overlay names as its base; `None` if it names none. Of a URL, it has neither query nor
/// password: [`base_to_open`].
///
/// # Errors
/// [`Error::Open`] if it is no qcow2 image, or cannot be read.
pub fn base(overlay: impl AsRef<Path>) -> Result<Option<PathBuf>> {
    let overlay = overlay.as_ref();
    base_of(overlay).map_err(|source| Error::open(overlay, source))
}

/// The same, by the URL that `image` allows for it: with its query or its password.
///
/// # Errors
/// As [`base`].
pub fn base_to_open(overlay: impl AsRef<Path>, image: &ImageOptions) -> Result<Option<PathBuf>> {
    Ok(base(overlay)?.map(|base| image.whole_base(base)))
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
    // A file is locked against writers while it is read; an object is pinned to one version.
    let (new, _lock) = Image::locked(&image.without_overlay(), base).map_err(of_base)?;
    refuse_circle(overlay, image, base).map_err(of_base)?;
    let disk = disk(overlay, image, true).map_err(failed)?;
    let total = ReadAt::len_bytes(&disk).map_err(failed)?;
    if new.len_bytes().map_err(of_base)? > total {
        let why = "it is larger than the disk of the overlay, which would hide its end";
        return Err(of_base(io::Error::new(io::ErrorKind::InvalidInput, why)));
    }
    let mut progress = |done| progress(done, total);
    let whole = object::whole(base);
    let base = whole.as_deref().unwrap_or(base);
    overlay::rebase((overlay, disk), (new.at(base), &new), &mut progress).map_err(failed)
}

/// How an overlay is uploaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upload {
    /// The disk that it shows, as a raw image; else the overlay as it is, a qcow2 image over the same base.
    pub flatten: bool,
    /// Also if there is an object of that name.
    pub replace: bool,
}

/// Uploads an overlay, or the disk that it shows, as the object with the URL `to`, in parts, and without a
/// copy on this machine. The object is there as a whole or not at all.
///
/// # Errors
/// [`Error::Open`]: with [`io::ErrorKind::AlreadyExists`] if there is an object that is not to be replaced,
/// with [`io::ErrorKind::InvalidInput`] if that is a base of the overlay; of `progress`.
pub fn upload(
    overlay: impl AsRef<Path>,
    image: &ImageOptions,
    to: impl AsRef<Path>,
    upload: Upload,
    progress: Progress<'_>,
) -> Result<()> {
    let (overlay, to) = (overlay.as_ref(), to.as_ref());
    let failed = |source| Error::open(overlay, source);
    let of_object = |source| Error::open(to, source);
    if !object::is_named(to) {
        let why = "it is not the name of an object: s3://BUCKET/KEY, gs:// or az://";
        return Err(of_object(io::Error::new(io::ErrorKind::InvalidInput, why)));
    }
    refuse_base(overlay, image, to)?;
    let mut send = |from: &dyn ReadAt| {
        let sent = object::upload(to, from, upload.replace, &mut *progress);
        sent.unwrap_or(Ok(())).map_err(of_object)
    };
    if upload.flatten {
        return send(&disk(overlay, image, false).map_err(failed)?);
    }
    let locked = DeviceOptions::new().direct(false).lock(LockMode::Shared);
    let locked = locked.open_locked(overlay).map_err(failed)?;
    let copy = locked.file().try_clone().map_err(failed)?;
    overlay::check_whole(copy).map_err(failed)?;
    send(locked.file())
}

/// An overlay is not uploaded to the place of one of its bases.
fn refuse_base(overlay: &Path, image: &ImageOptions, to: &Path) -> Result<()> {
    let shown = object::object_shown(to);
    let is_to = |base: &Path| object::object_shown(base) == shown;
    let is_base = any_base(overlay, image, is_to).map_err(|source| Error::open(overlay, source))?;
    match is_base {
        true => {
            let why = "it is a base of the overlay";
            let why = io::Error::new(io::ErrorKind::InvalidInput, why);
            Err(Error::open(to, why))
        }
        false => Ok(()),
    }
}

/// Whether one of the bases of an overlay is such a one. Those that it may not name are not opened.
fn any_base(
    overlay: &Path,
    image: &ImageOptions,
    is_it: impl Fn(&Path) -> bool,
) -> io::Result<bool> {
    let mut base = base_of(overlay)?;
    for _ in 0..64 {
        let Some(at) = base else {
            return Ok(false);
        };
        if is_it(&at) {
            return Ok(true);
        }
        // A base that cannot be read, or is raw, names no other.
        base = match image.may_open(&at) {
            true => base_of(&image.whole_base(at)).unwrap_or(None),
            false => None,
        };
    }
    Ok(false)
}

/// The new base must not be the overlay, or laid over it.
fn refuse_circle(overlay: &Path, image: &ImageOptions, base: &Path) -> io::Result<()> {
    let overlay = overlay.canonicalize()?;
    let is_it = |base: &Path| base.canonicalize().is_ok_and(|base| base == overlay);
    if is_it(base) || any_base(base, image, is_it).unwrap_or(false) {
        let why = "it is the overlay itself, or laid over it";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}

/// Removes an overlay that holds no changes, and says whether it did. Nobody may have it open.
///
/// # Errors
/// [`Error::Open`]; [`Reason::Busy`](crate::Reason::Busy) if somebody has.
pub fn remove_unused(overlay: impl AsRef<Path>) -> Result<bool> {
    let overlay = overlay.as_ref();
    let remove = || -> io::Result<bool> {
        let options = DeviceOptions::new().direct(false).write(true);
        let locked = options.lock(LockMode::Exclusive).open_locked(overlay)?;
        let is_unused = overlay::is_unused(locked.file().try_clone()?)?;
        if is_unused {
            // While it is locked: nobody has begun to write to it.
            std::fs::remove_file(overlay)?;
        }
        Ok(is_unused)
    };
    remove().map_err(|source| not_opened(overlay, source))
}

fn disk(overlay: &Path, image: &ImageOptions, write: bool) -> io::Result<VirtualDisk> {
    image
        .without_overlay()
        .disk(overlay, write, LockMode::of(write))
}
