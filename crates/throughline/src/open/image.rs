//! The disk in an image: the file itself, or what its format makes of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use throughline_device::{BlockDevice, LockMode};
use throughline_image::{Backing, DiskOptions, Format, ReadAt, VirtualDisk};

use super::object;
use crate::own::{Device, Own};

/// A disk, to look at what is on it. It is not locked.
pub(crate) enum Image {
    Raw(File),
    /// Neither a file nor a block device.
    Other(File),
    Virtual(VirtualDisk),
    /// In object storage.
    Object(Looked),
}

/// What is only looked at.
pub(crate) type Looked = Arc<dyn ReadAt + Send + Sync>;

impl Image {
    /// # Errors
    /// As [`VirtualDisk::open`].
    pub(crate) fn peek(shape: &Shape, path: &Path) -> io::Result<Image> {
        if let Some(object) = object::peek(path) {
            let image = Image::Object(object?);
            return match shape.format.map_or_else(|| Format::of(&image), Ok)? {
                Format::Raw => Ok(image),
                _ => Err(object::not_raw()),
            };
        }
        let file = open(path)?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Ok(Image::Other(file));
        }
        match shape.format.map_or_else(|| Format::of(&file), Ok)? {
            Format::Raw => Ok(Image::Raw(file)),
            format => {
                let disk = shape.disk_options(format, false, LockMode::None);
                VirtualDisk::open(path, &disk).map(Image::Virtual)
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
            Image::Virtual(disk) => ReadAt::read_exact_at(disk, buffer, at),
            Image::Object(object) => object.read_exact_at(buffer, at),
        }
    }

    fn len_bytes(&self) -> io::Result<u64> {
        match self {
            Image::Raw(file) | Image::Other(file) => file.len_bytes(),
            Image::Virtual(disk) => ReadAt::len_bytes(disk),
            Image::Object(object) => object.len_bytes(),
        }
    }
}

/// How the disk lies in its file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    /// `None`: by content.
    pub(super) format: Option<Format>,
    pub(super) backing: Backing,
}

impl Shape {
    fn disk_options(&self, format: Format, write: bool, lock: LockMode) -> DiskOptions {
        DiskOptions {
            format: Some(format),
            write,
            lock,
            backing: self.backing.clone(),
        }
    }

    /// The format of the image at `path`, as it was named or by content.
    ///
    /// # Errors
    /// As [`Format::of`].
    pub(crate) fn detected(&self, path: &Path) -> io::Result<Format> {
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
        if let Some(device) = object::device(path, self.format, write) {
            return device.map(Some);
        }
        let format = match self.detected(path) {
            Ok(format) => format,
            // Whether the file can be opened and read is seen when it is.
            Err(error) if error.raw_os_error().is_some() => Format::Raw,
            Err(error) => return Err(error),
        };
        match format {
            Format::Raw => Ok(None),
            format => {
                let disk = VirtualDisk::open(path, &self.disk_options(format, write, lock))?;
                Ok(Some(Arc::new(Own::new(disk)?)))
            }
        }
    }
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
