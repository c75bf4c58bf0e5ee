//! The disk in an image: the file itself, or what its format makes of it.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{Mode, OFlags};
use throughline_device::{
    AlignedBuf, BlockDevice, LockMode, LockedFile, OpenOptions as DeviceOptions,
};
use throughline_image::overlay::{self, NewBase};
use throughline_image::{Backing, DiskOptions, Format, Object, ReadAt, VirtualDisk};

use super::object;
use crate::own::{Device, Own};

/// A disk, to look at what is on it.
pub(crate) enum Image {
    Raw(File),
    /// Neither a file nor a block device.
    Other(File),
    Virtual(Box<VirtualDisk>),
    /// In object storage.
    Object(Object),
}

impl Image {
    /// Without a lock.
    ///
    /// # Errors
    /// As [`VirtualDisk::open_as`].
    pub(crate) fn peek(options: &ImageOptions, path: &Path) -> io::Result<Image> {
        Ok(match options.found(path, false)? {
            Found::Raw(file) => Image::Raw(file),
            Found::Other(file) => Image::Other(file),
            Found::Object(object) => Image::Object(object),
            Found::Virtual(image) => Image::Virtual(Box::new(image.open(false, LockMode::None)?)),
        })
    }

    /// The disk in the image at `path`, for reading, and the lock on its file if the disk does not have it.
    ///
    /// # Errors
    /// As [`VirtualDisk::open_as`].
    pub(crate) fn locked(
        options: &ImageOptions,
        path: &Path,
    ) -> io::Result<(Image, Option<LockedFile>)> {
        Ok(match options.found(path, false)? {
            Found::Object(object) => (Image::Object(object), None),
            Found::Virtual(image) => {
                let disk = image.open(false, LockMode::Shared)?;
                (Image::Virtual(Box::new(disk)), None)
            }
            Found::Raw(_) | Found::Other(_) => {
                let open = DeviceOptions::new().direct(false).lock(LockMode::Shared);
                let locked = open.open_locked(path)?;
                (Image::Raw(locked.file().try_clone()?), Some(locked))
            }
        })
    }

    /// The image, which is at `path`, as the base of an overlay. Of an object whose URL has a secret that is
    /// in the environment, `path` is to be the [whole](object::whole) one, so that the overlay says so.
    pub(crate) fn at<'a>(&'a self, path: &'a Path) -> NewBase<'a> {
        let (format, version) = match self {
            Image::Raw(_) | Image::Other(_) => (Format::Raw, None),
            Image::Virtual(disk) => (disk.format(), disk.version()),
            Image::Object(object) => (Format::Raw, Some(object.version.as_str())),
        };
        NewBase {
            path,
            format,
            version,
        }
    }

    /// Whether it can have partitions.
    pub(crate) fn has_partitions(&self) -> bool {
        !matches!(self, Image::Other(_))
    }
}

/// Opens without waiting for the other end of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

impl ReadAt for Image {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Image::Raw(file) | Image::Other(file) => ReadAt::read_exact_at(file, buffer, at),
            Image::Virtual(disk) => ReadAt::read_exact_at(&**disk, buffer, at),
            Image::Object(object) => object.read_exact_at(buffer, at),
        }
    }

    fn len_bytes(&self) -> io::Result<u64> {
        match self {
            Image::Raw(file) | Image::Other(file) => file.len_bytes(),
            Image::Virtual(disk) => ReadAt::len_bytes(&**disk),
            Image::Object(object) => object.len_bytes(),
        }
    }

    fn sector_bytes(&self) -> io::Result<u64> {
        match self {
            Image::Raw(file) | Image::Other(file) => file.sector_bytes(),
            Image::Virtual(_) | Image::Object(_) => Ok(512),
        }
    }
}

/// How a disk lies in its image, of a volume that is opened by path.
///
/// ```no_run
/// use throughline::{Backing, ImageOptions, OpenOptions};
///
/// # fn main() -> throughline::Result<()> {
/// // What is written goes to changes.qcow2, which is made if it is not there; base.img stays as it is.
/// let mut image = ImageOptions::new();
/// image.overlay(Some("changes.qcow2".into()));
/// let volume = OpenOptions::new().write(true).image(&image).open("base.img")?;
/// volume.write("/etc/hostname", "one\n")?;
/// volume.close()?;
///
/// // The same disk, by the name of the overlay.
/// let mut image = ImageOptions::new();
/// image.backing(Backing::none().allow("base.img"));
/// OpenOptions::new().image(&image).open("changes.qcow2")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ImageOptions {
    format: Option<Format>,
    backing: Backing,
    overlay: Option<PathBuf>,
    /// When this is set, an overlay that was empty when it was opened is removed when it is closed.
    pub(crate) unwanted: Option<Arc<AtomicBool>>,
}

impl ImageOptions {
    /// By content, without backing files and without an overlay.
    pub fn new() -> ImageOptions {
        ImageOptions::default()
    }

    /// The format of the image; `None`, the default: by content. A raw image of somebody who may have written
    /// the beginning of another format into it, such as a guest, should be named as [`Format::Raw`].
    pub fn format(&mut self, format: Option<Format>) -> &mut Self {
        self.format = format;
        self
    }

    /// The backing files that an image of the format qcow2 may name. The default: none, so that an image
    /// cannot make this process open another file.
    pub fn backing(&mut self, backing: Backing) -> &mut Self {
        self.backing = backing;
        self
    }

    /// A qcow2 image that holds what is changed: the image that is opened is its backing file, and is only
    /// read. It is made when the image is first opened for writing. Whoever opens the image for reading sees
    /// it with the overlay, if there is one. An overlay of another image is not read, and not written.
    pub fn overlay(&mut self, overlay: Option<PathBuf>) -> &mut Self {
        self.overlay = overlay;
        self
    }

    pub(crate) fn overlay_path(&self) -> Option<&Path> {
        self.overlay.as_deref()
    }

    /// The base that an overlay names, as it is opened.
    pub(crate) fn whole_base(&self, base: PathBuf) -> PathBuf {
        overlay::whole_base(base, &self.backing)
    }

    /// Whether an image may make this file or object be opened.
    pub(crate) fn may_open(&self, named: &Path) -> bool {
        self.backing.may_open(named)
    }

    /// The same, of the image itself.
    pub(crate) fn without_overlay(&self) -> ImageOptions {
        ImageOptions {
            overlay: None,
            ..self.clone()
        }
    }

    /// What the image at `path` is. `make` also makes an overlay that is not there.
    fn found<'a>(&'a self, path: &'a Path, make: bool) -> io::Result<Found<'a>> {
        if let Some(over) = self.overlaid(path, make)? {
            return Ok(Found::Virtual(over));
        }
        let format = |image: &dyn ReadAt| self.format.map_or_else(|| Format::of(image), Ok);
        let found = |format| {
            let backing = Cow::Borrowed(&self.backing);
            Found::Virtual(Virtual {
                path,
                format,
                backing,
            })
        };
        if let Some(object) = object::open(path) {
            let object = object?;
            return Ok(match format(&object)? {
                Format::Raw => Found::Object(object),
                format => found(format),
            });
        }
        let file = open(path)?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Ok(Found::Other(file));
        }
        Ok(match format(&file)? {
            Format::Raw => Found::Raw(file),
            format => found(format),
        })
    }

    /// The overlay, if there is one of the image at `path`.
    fn overlaid<'a>(&'a self, path: &'a Path, make: bool) -> io::Result<Option<Virtual<'a>>> {
        let Some(overlay) = &self.overlay else {
            return Ok(None);
        };
        let base = match base_of(overlay) {
            Ok(base) => base,
            Err(error) if error.kind() == io::ErrorKind::NotFound && make => {
                self.make_overlay(overlay, path)?;
                Some(path.to_owned())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(of(overlay, &error)),
        };
        if base.as_ref().is_some_and(|base| is_same(base, path)) {
            return Ok(Some(Virtual {
                path: overlay,
                format: Format::Qcow2,
                backing: Cow::Owned(self.backing.clone().allow(path)),
            }));
        }
        match make {
            false => Ok(None),
            true => {
                let overlay = overlay.clone();
                let other = OtherBase { overlay, base };
                Err(io::Error::new(io::ErrorKind::InvalidInput, other))
            }
        }
    }

    /// Makes an overlay over the image at `path`.
    fn make_overlay(&self, overlay: &Path, path: &Path) -> io::Result<()> {
        let base = Image::peek(&self.without_overlay(), path)?;
        let whole = object::whole(path);
        let path = whole.as_deref().unwrap_or(path);
        let made = overlay::create(overlay, base.at(path), base.len_bytes()?);
        made.map_err(|error| of(overlay, &error))
    }

    /// The format of the image at `path`, as it was named or by content.
    ///
    /// # Errors
    /// As [`Format::of`].
    pub(crate) fn detected(&self, path: &Path) -> io::Result<Format> {
        if self.overlay.is_some() {
            return Ok(Format::Qcow2);
        }
        if let Some(format) = self.format {
            return Ok(format);
        }
        Ok(match self.found(path, false)? {
            Found::Virtual(image) => image.format,
            Found::Raw(_) | Found::Other(_) | Found::Object(_) => Format::Raw,
        })
    }

    /// The disk in a qcow2 image.
    ///
    /// # Errors
    /// As [`VirtualDisk::open_as`]; [`io::ErrorKind::InvalidInput`] if it is another image.
    pub(crate) fn disk(&self, path: &Path, write: bool, lock: LockMode) -> io::Result<VirtualDisk> {
        match self.found(path, write)? {
            Found::Virtual(image) if image.format == Format::Qcow2 => image.open(write, lock),
            _ => {
                let why = "it is no overlay: it is not a qcow2 image";
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }

    /// The disk in the image at `path`, locked; `None` if it is the file itself.
    ///
    /// # Errors
    /// As [`VirtualDisk::open_as`].
    pub(crate) fn device(
        &self,
        path: &Path,
        write: bool,
        lock: LockMode,
    ) -> io::Result<Option<Arc<dyn BlockDevice>>> {
        if write && self.overlay.is_none() && object::is_named(path) {
            return Err(object::only_read());
        }
        match self.found(path, write) {
            Ok(Found::Raw(_) | Found::Other(_)) => Ok(None),
            Ok(Found::Object(_)) => object::device(path, write).transpose(),
            Ok(Found::Virtual(image)) => {
                let mut disk = image.open(write, lock)?;
                if let (Some(_), Some(unwanted)) = (&self.overlay, &self.unwanted) {
                    disk.remove_if(Arc::clone(unwanted))?;
                }
                Ok(Some(Arc::new(Own::new(disk)?)))
            }
            // Whether the file can be opened and read is seen when it is.
            Err(error) if error.raw_os_error().is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What an image is.
enum Found<'a> {
    /// The bytes of a file or a block device are the disk.
    Raw(File),
    /// Neither a file nor a block device.
    Other(File),
    /// The bytes of an object are the disk.
    Object(Object),
    /// An image of another format, of a file or an object.
    Virtual(Virtual<'a>),
}

struct Virtual<'a> {
    path: &'a Path,
    format: Format,
    backing: Cow<'a, Backing>,
}

impl Virtual<'_> {
    fn open(self, write: bool, lock: LockMode) -> io::Result<VirtualDisk> {
        let options = DiskOptions {
            write,
            lock,
            backing: self.backing.into_owned().with_whole(object::whole),
            objects: object::open,
        };
        VirtualDisk::open_as(self.format, self.path, &options)
    }
}

/// The image that an overlay names as its base; `None` if it names none.
///
/// # Errors
/// As [`overlay::base_of`].
pub(crate) fn base_of(overlay: &Path) -> io::Result<Option<PathBuf>> {
    match object::open(overlay) {
        Some(object) => overlay::base_of(overlay, &object?),
        None => overlay::base_of(overlay, &File::open(overlay)?),
    }
}

/// Whether two names mean one image.
fn is_same(one: &Path, other: &Path) -> bool {
    overlay::is_base(one, other)
        || one
            .canonicalize()
            .is_ok_and(|one| other.canonicalize().is_ok_and(|it| it == one))
}

/// An overlay holds changes of another image than the one that is opened.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the overlay {} is one of {}", overlay.display(), named(base.as_deref()))]
pub struct OtherBase {
    /// The overlay.
    pub overlay: PathBuf,
    /// The image that it is laid over; `None`: it is an image of its own.
    pub base: Option<PathBuf>,
}

fn named(base: Option<&Path>) -> String {
    match base {
        Some(base) => object::object_shown(base).unwrap_or_else(|| base.display().to_string()),
        None => "no image".to_owned(),
    }
}

fn of(overlay: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("the overlay {}: {error}", overlay.display()),
    )
}

impl Device for VirtualDisk {
    fn len_bytes(&self) -> u64 {
        // It is known since the disk was opened.
        ReadAt::len_bytes(self).unwrap_or_default()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        ReadAt::read_exact_at(self, buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        VirtualDisk::write_all_at(self, buf, offset)
    }

    fn write_all_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        // Together, as they may fill clusters that none of them fills: a cluster is written whole.
        match bufs {
            [buf] => VirtualDisk::write_all_at(self, buf, offset),
            bufs => {
                let len_bytes = bufs.iter().map(|buf| buf.len()).sum();
                let mut whole = AlignedBuf::zeroed(len_bytes, 4096);
                let mut rest = &mut whole[..];
                for buf in bufs {
                    let (part, behind) = rest.split_at_mut(buf.len());
                    part.copy_from_slice(buf);
                    rest = behind;
                }
                VirtualDisk::write_all_at(self, &whole, offset)
            }
        }
    }

    fn flush(&self) -> io::Result<()> {
        VirtualDisk::flush(self)
    }

    fn discards(&self) -> bool {
        self.format().is_written()
    }

    /// A call waits for the file of the image.
    fn queue_depth(&self) -> u32 {
        8
    }

    /// They go to the system's cache.
    fn quick_write_bytes(&self) -> u64 {
        64 << 10
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        VirtualDisk::discard(self, offset, len_bytes)
    }

    fn name(&self) -> String {
        VirtualDisk::name(self).to_owned()
    }
}
