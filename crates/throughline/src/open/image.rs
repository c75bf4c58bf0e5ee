//! The disk in an image: the file itself, or what its format makes of it.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use throughline_device::{BlockDevice, LockMode, LockedFile, OpenOptions as DeviceOptions};
use throughline_image::{Backing, DiskOptions, Format, OpenBase, ReadAt, VirtualDisk, overlay};

use super::object;
use crate::own::{Device, Own};

/// A disk, to look at what is on it. It is not locked.
pub(crate) enum Image {
    Raw(File),
    /// Neither a file nor a block device.
    Other(File),
    Virtual(Box<VirtualDisk>),
    /// In object storage.
    Object(Looked),
}

/// What is only looked at.
pub(crate) type Looked = Arc<dyn ReadAt + Send + Sync>;

impl Image {
    /// # Errors
    /// As [`VirtualDisk::open`].
    pub(crate) fn peek(options: &ImageOptions, path: &Path) -> io::Result<Image> {
        let found = options.found(path, false)?;
        if let Some(base) = found.base {
            let disk = found.options.disk_options(false, LockMode::None);
            let disk = VirtualDisk::open_over(found.path, &disk, base)?;
            return Ok(Image::Virtual(Box::new(disk)));
        }
        let (options, path) = (found.options, found.path);
        if let Some(object) = object::peek(path) {
            let image = Image::Object(object?);
            return match options.format.map_or_else(|| Format::of(&image), Ok)? {
                Format::Raw => Ok(image),
                _ => Err(object::not_raw()),
            };
        }
        let file = open(path)?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Ok(Image::Other(file));
        }
        match options.format.map_or_else(|| Format::of(&file), Ok)? {
            Format::Raw => Ok(Image::Raw(file)),
            _ => {
                let disk = options.disk_options(false, LockMode::None);
                let disk = VirtualDisk::open(path, &disk)?;
                Ok(Image::Virtual(Box::new(disk)))
            }
        }
    }

    /// The disk in the image at `path`, for reading, and the lock on its file if the disk does not have it.
    ///
    /// # Errors
    /// As [`VirtualDisk::open`].
    pub(crate) fn locked(
        options: &ImageOptions,
        path: &Path,
    ) -> io::Result<(Image, Option<LockedFile>)> {
        if object::is_named(path) {
            let why = "an object can only be the base of a new overlay: --overlay makes one";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        match options.detected(path)? {
            Format::Raw => {
                let open = DeviceOptions::new().direct(false).lock(LockMode::Shared);
                let locked = open.open_locked(path)?;
                Ok((Image::Raw(locked.file().try_clone()?), Some(locked)))
            }
            _ => {
                let disk = VirtualDisk::open(path, &options.disk_options(false, LockMode::Shared))?;
                Ok((Image::Virtual(Box::new(disk)), None))
            }
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

    /// The same, of the image itself.
    pub(crate) fn without_overlay(&self) -> ImageOptions {
        ImageOptions {
            overlay: None,
            ..self.clone()
        }
    }

    pub(crate) fn disk_options(&self, write: bool, lock: LockMode) -> DiskOptions {
        DiskOptions {
            write,
            lock,
            backing: self.backing.clone(),
        }
    }

    /// The file that holds the disk of the image at `path`. `make` also makes an overlay that is not there.
    fn found<'a>(&'a self, path: &'a Path, make: bool) -> io::Result<Found<'a>> {
        let alone = |options| Found {
            options,
            path,
            base: None,
        };
        let Some(overlay) = &self.overlay else {
            return Ok(Found {
                base: self.object_under(path)?,
                ..alone(Cow::Borrowed(self))
            });
        };
        let options = self.without_overlay();
        let base = match overlay::base_of(overlay) {
            Ok(base) => base,
            Err(error) if error.kind() == io::ErrorKind::NotFound && make => {
                options.make_overlay(overlay, path)?;
                Some(path.to_owned())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(alone(Cow::Owned(options)));
            }
            Err(error) => return Err(of(overlay, &error)),
        };
        if !base.as_ref().is_some_and(|base| is_same(base, path)) {
            return match make {
                false => Ok(alone(Cow::Owned(options))),
                true => {
                    let overlay = overlay.clone();
                    let other = OtherBase { overlay, base };
                    Err(io::Error::new(io::ErrorKind::InvalidInput, other))
                }
            };
        }
        let over = ImageOptions {
            format: Some(Format::Qcow2),
            backing: options.backing.allow(path),
            overlay: None,
        };
        Ok(Found {
            options: Cow::Owned(over),
            path: overlay,
            base: object::base(path).transpose()?,
        })
    }

    /// The object that the image at `path` is laid over, if it is allowed.
    fn object_under(&self, path: &Path) -> io::Result<Option<OpenBase>> {
        if self.backing == Backing::none() || object::is_named(path) {
            return Ok(None);
        }
        match overlay::base_of(path) {
            Ok(Some(base)) if self.backing.allows_name(&base) => object::base(&base).transpose(),
            // Whether it can be opened is seen when it is.
            _ => Ok(None),
        }
    }

    /// The disk in a qcow2 image.
    ///
    /// # Errors
    /// As [`VirtualDisk::open`].
    pub(crate) fn disk(&self, path: &Path, write: bool, lock: LockMode) -> io::Result<VirtualDisk> {
        let found = self.found(path, write)?;
        let disk = found.options.disk_options(write, lock);
        match found.base {
            Some(base) => VirtualDisk::open_over(found.path, &disk, base),
            None => VirtualDisk::open(found.path, &disk),
        }
    }

    /// Makes an overlay over the image at `path`.
    fn make_overlay(&self, overlay: &Path, path: &Path) -> io::Result<()> {
        let format = self.detected(path)?;
        let len_bytes = Image::peek(self, path)?.len_bytes()?;
        let made = match object::base(path).transpose()? {
            None => overlay::create(overlay, path, format, len_bytes),
            Some(base) => overlay::create_over(overlay, &path.to_string_lossy(), &base, len_bytes),
        };
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
        if let Some(object) = object::peek(path) {
            return Format::of(&Image::Object(object?));
        }
        let file = open(path)?;
        let kind = file.metadata()?.file_type();
        match kind.is_file() || kind.is_block_device() {
            true => Format::of(&file),
            false => Ok(Format::Raw),
        }
    }

    /// The disk in the image at `path`, locked; `None` if it is the file itself.
    ///
    /// # Errors
    /// As [`VirtualDisk::open`].
    pub(crate) fn device(
        &self,
        path: &Path,
        write: bool,
        lock: LockMode,
    ) -> io::Result<Option<Arc<dyn BlockDevice>>> {
        let found = self.found(path, write)?;
        let disk = found.options.disk_options(write, lock);
        if let Some(base) = found.base {
            let disk = VirtualDisk::open_over(found.path, &disk, base)?;
            return Ok(Some(Arc::new(Own::new(disk)?)));
        }
        let (options, path) = (found.options, found.path);
        if let Some(device) = object::device(path, options.format, write) {
            return device.map(Some);
        }
        let format = match options.detected(path) {
            Ok(format) => format,
            // Whether the file can be opened and read is seen when it is.
            Err(error) if error.raw_os_error().is_some() => Format::Raw,
            Err(error) => return Err(error),
        };
        match format {
            Format::Raw => Ok(None),
            _ => {
                let disk = VirtualDisk::open(path, &options.disk_options(write, lock))?;
                Ok(Some(Arc::new(Own::new(disk)?)))
            }
        }
    }
}

/// Where the disk of an image is.
struct Found<'a> {
    options: Cow<'a, ImageOptions>,
    path: &'a Path,
    /// What the file is laid over, if that is not a file.
    base: Option<OpenBase>,
}

/// Whether two names mean one image.
fn is_same(one: &Path, other: &Path) -> bool {
    one == other
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
    base.map_or_else(|| "no image".to_owned(), |base| base.display().to_string())
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

    fn flush(&self) -> io::Result<()> {
        VirtualDisk::flush(self)
    }

    fn discards(&self) -> bool {
        true
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        VirtualDisk::discard(self, offset, len_bytes)
    }

    fn name(&self) -> String {
        VirtualDisk::name(self).to_owned()
    }
}
