//! Overlays: qcow2 images that hold what was changed of a base, which is never written.
//!
//! Invariants:
//! - A file that is not finished has another name or none, so an overlay is there as a whole or not at all.
//! - The base that an overlay names changes in one write of a sector: a cut leaves the old or the new one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use throughline_device::{NewFile, directory_of};

use crate::allowed::{Backing, backing_place, is_url, without_secrets};
use crate::format::Format;
use crate::qcow2::{self, Header, NewBacking};
use crate::source::ReadAt;
use crate::virtual_disk::VirtualDisk;

/// The bytes that are compared or copied at once: the clusters of new images.
const STEP_BYTES: u64 = 64 << 10;

/// What an overlay is laid over.
#[derive(Clone, Copy, Debug)]
pub struct NewBase<'a> {
    /// Its name: a path, or the URL of an object.
    pub path: &'a Path,
    /// How the disk lies in it.
    pub format: Format,
    /// Of an object: the only version that fits.
    pub version: Option<&'a str>,
}

impl NewBase<'_> {
    /// How an overlay names it: relative to its own folder if both are files in the same one.
    fn name_for(&self, overlay: &Path) -> io::Result<String> {
        match self.version {
            Some(_) => text(self.path),
            None => name_of(overlay, self.path),
        }
    }
}

/// What an overlay says of its base.
struct Named<'a> {
    name: String,
    /// The name is a URL without its query and its password.
    is_shortened: bool,
    format: String,
    version: Option<&'a str>,
}

impl<'a> Named<'a> {
    fn new(overlay: &Path, base: NewBase<'a>) -> io::Result<Named<'a>> {
        let mut name = base.name_for(overlay)?;
        let mut is_shortened = false;
        if is_url(&name) {
            let bare = without_secrets(&name);
            is_shortened = bare != name;
            name = bare;
        }
        Ok(Named {
            name,
            is_shortened,
            format: base.format.to_string(),
            version: base.version,
        })
    }

    fn backing(&self) -> NewBacking<'_> {
        NewBacking {
            name: &self.name,
            format: &self.format,
            version: self.version,
            is_shortened: self.is_shortened,
        }
    }
}

/// Makes an overlay over a base whose disk has `len_bytes`. Of a URL with a query or a password, these are
/// not written: who opens the overlay has to know them.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`]; [`io::ErrorKind::InvalidInput`] if the disk is too large or the name too
/// long; of the file system.
pub fn create(overlay: &Path, base: NewBase<'_>, len_bytes: u64) -> io::Result<()> {
    let base = Named::new(overlay, base)?;
    make(overlay, len_bytes, Some(base.backing()))
}

/// Makes an empty qcow2 image of a disk of `len_bytes`, over nothing.
///
/// # Errors
/// The same.
pub fn create_empty(path: &Path, len_bytes: u64) -> io::Result<()> {
    make(path, len_bytes, None)
}

fn make(path: &Path, len_bytes: u64, backing: Option<NewBacking<'_>>) -> io::Result<()> {
    let file = NewFile::new(path)?;
    qcow2::create(file.file(), len_bytes, backing)?;
    name(file, path)
}

/// The file or object that the overlay at `path`, whose bytes are `image`, names as its base; `None` if it
/// names none. It is not opened.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it is no qcow2 image; of the device.
pub fn base_of(path: &Path, image: &dyn ReadAt) -> io::Result<Option<PathBuf>> {
    if Format::of(image)? != Format::Qcow2 {
        let why = "it is no overlay: it is not a qcow2 image";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let header = Header::read(image)?;
    Ok(header.backing_file().map(|name| backing_place(path, name)))
}

/// Whether an overlay with this base is one of the image at `path`: URLs may differ in their queries, users
/// and passwords, which overlays do not keep. The version of the base tells objects apart that have only
/// these.
pub fn is_base(base: &Path, path: &Path) -> bool {
    let url = |path: &Path| path.to_str().filter(|it| is_url(it)).map(without_secrets);
    base == path || url(base).is_some_and(|base| url(path) == Some(base))
}

/// The base of an overlay as it is opened: by a URL with a query or a password, if that is allowed.
pub fn whole_base(base: PathBuf, allowed: &Backing) -> PathBuf {
    match base.to_str().and_then(|url| allowed.whole(url)) {
        Some(whole) => whole.into(),
        None => base,
    }
}

/// Checks that an overlay can be copied as it is: that it holds all that it refers to.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`]; of the device.
pub fn check_whole(image: File) -> io::Result<()> {
    VirtualDisk::in_store(Box::new(image), None, false).map(drop)
}

/// Whether an overlay holds nothing.
///
/// # Errors
/// As [`check_whole`].
pub fn is_unused(image: File) -> io::Result<bool> {
    let disk = VirtualDisk::in_store(Box::new(image), None, false)?;
    Ok(disk.next_own(0)?.is_none())
}

/// Makes the overlay at `path`, whose disk is `disk`, one over `base`, whose disk is `new`: where the two
/// bases differ and the overlay has nothing, the bytes of the old one are copied to it first. `progress` is
/// told how many bytes were compared.
///
/// # Errors
/// As [`create`], and of both disks and `progress`; [`io::ErrorKind::Unsupported`] for an overlay with
/// snapshots, before anything is copied.
pub fn rebase(
    (path, disk): (&Path, VirtualDisk),
    (base, new): (NewBase<'_>, &dyn ReadAt),
    progress: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let base = Named::new(path, base)?;
    let backing = base.backing();
    let file = File::options().read(true).write(true).open(path)?;
    qcow2::check_backing(&file, backing)?;
    let len_bytes = ReadAt::len_bytes(&disk)?;
    let new_bytes = new.len_bytes()?;
    let mut buffers = [vec![0; step()], vec![0; step()]];
    let mut at = 0;
    let mut own = disk.next_own(0)?;
    while at < len_bytes {
        progress(at)?;
        if let Some((from, end)) = own
            && from <= at
        {
            at = end;
            own = disk.next_own(at)?;
            continue;
        }
        let next = own.map_or(len_bytes, |(from, _)| from);
        let end = at.saturating_add(STEP_BYTES).min(next);
        let len = usize::try_from(end.saturating_sub(at)).unwrap_or(0);
        let [before, after] = &mut buffers;
        let (before, after) = (before.split_at_mut(len).0, after.split_at_mut(len).0);
        // What the overlay does not have is read from its base.
        disk.read_exact_at(before, at)?;
        read_padded(new, new_bytes, after, at)?;
        if before != after {
            disk.write_all_at(before, at)?;
        }
        at = end;
    }
    disk.flush()?;
    progress(len_bytes)?;
    // Before the lock on the overlay is released.
    qcow2::set_backing(&file, backing)?;
    drop(disk);
    Ok(())
}

/// Reads bytes that may be past the end: they are zeros.
fn read_padded(disk: &dyn ReadAt, len_bytes: u64, buffer: &mut [u8], at: u64) -> io::Result<()> {
    let there = usize::try_from(len_bytes.saturating_sub(at)).unwrap_or(usize::MAX);
    let (there, past) = buffer.split_at_mut(there.min(buffer.len()));
    past.fill(0);
    match there.is_empty() {
        true => Ok(()),
        false => disk.read_exact_at(there, at),
    }
}

/// Copies a disk to a new file, without its zeros. `progress` is told how many bytes were read.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`]; of the device and the file system.
pub fn flatten(
    disk: &dyn ReadAt,
    to: &Path,
    progress: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let file = NewFile::new(to)?;
    let len_bytes = disk.len_bytes()?;
    file.file().set_len(len_bytes)?;
    let mut buffer = vec![0; step().saturating_mul(16)];
    let mut at = 0;
    while at < len_bytes {
        progress(at)?;
        let rest = usize::try_from(len_bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        let len = rest.min(buffer.len());
        let part = buffer.split_at_mut(len).0;
        disk.read_exact_at(part, at)?;
        for chunk in part.chunks(step()) {
            if chunk.iter().any(|byte| *byte != 0) {
                file.file().write_all_at(chunk, at)?;
            }
            at = at.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        }
    }
    progress(len_bytes)?;
    file.file().sync_all()?;
    name(file, to)
}

fn step() -> usize {
    usize::try_from(STEP_BYTES).unwrap_or(1 << 16)
}

/// Gives a file that is finished its name, durably.
fn name(file: NewFile, path: &Path) -> io::Result<()> {
    file.persist(path, false)?;
    File::open(directory_of(path))?.sync_all()
}

/// How an overlay at `overlay` names its base.
fn name_of(overlay: &Path, base: &Path) -> io::Result<String> {
    let folder = directory_of(overlay).canonicalize()?;
    let base = base.canonicalize()?;
    let name = match base.strip_prefix(&folder) {
        // A name with a colon would be taken for a protocol.
        Ok(name) if name.components().count() == 1 && !has_colon(name) => name,
        _ => &base,
    };
    text(name)
}

fn text(name: &Path) -> io::Result<String> {
    name.to_str().map(str::to_owned).ok_or_else(|| {
        let why = "the name of the base is not UTF-8, which an overlay cannot hold";
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

fn has_colon(name: &Path) -> bool {
    name.to_str().is_some_and(|name| name.contains(':'))
}
