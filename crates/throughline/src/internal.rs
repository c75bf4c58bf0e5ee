//! What this workspace's own crates use beyond the public API: the command line, the lab and the tests
//! measure and drive the layers below a volume. It is in one place so that the public types show none of it.
//! It may change in any version.

use std::borrow::{Borrow, BorrowMut};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use throughline_device::{BlockDevice, LockMode};
use throughline_ext::Fs;
use throughline_fileio::PageCache;

pub use throughline_block::Disk;
pub use throughline_device::{NewFile, given_descriptor, given_file, shorten_slice};
pub use throughline_fileio::memory::{allowed_bytes, default_budget_bytes};
pub use throughline_make::parse_on_error;

pub use crate::errno::{errno_of, errno_of_io, errno_of_making, errno_of_source};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::mode::FileOptions;
pub use crate::open::object::{
    HeldObject, has_object_secrets, hold_object, object_cache_dir, object_scheme_bytes,
    object_shown, without_url_secrets, word_without_url_secrets,
};
use crate::open::{OpenOptions, located, not_opened, on_devices, table};
use crate::raw::RawFile;
use crate::resize::{NewSize, ResizeError, ResizeReport, resize_on};
pub use crate::size::parse_size;
pub use crate::time::{from_epoch, since_epoch};
use crate::volume::Volume;
use crate::{Format, ImageOptions, PartitionTable};

/// When `unwanted` is set, an overlay that was empty when it was opened is removed when it is closed.
pub fn remove_overlay_if(options: &mut ImageOptions, unwanted: Arc<AtomicBool>) {
    options.unwanted = Some(unwanted);
}

/// The layers below a volume.
pub trait VolumeLayers: Borrow<Volume> {
    /// The block layer.
    fn disk(&self) -> &Arc<Disk> {
        self.borrow().disk()
    }

    /// The page cache.
    fn cache(&self) -> &Arc<PageCache> {
        self.borrow().cache()
    }

    /// The file system.
    fn fs(&self) -> &Fs {
        self.borrow().fs()
    }
}

impl VolumeLayers for Volume {}

/// The layers below a raw file.
pub trait RawLayers: Borrow<RawFile> {
    /// The block layer.
    fn disk(&self) -> &Arc<Disk> {
        self.borrow().disk()
    }

    /// The page cache, if one was created.
    fn cache(&self) -> Option<&Arc<PageCache>> {
        self.borrow().cache()
    }
}

impl RawLayers for RawFile {}

/// What a server sets to open a file for its clients.
pub trait OpenGranted: BorrowMut<FileOptions> {
    /// Permission to write was checked at open time ([`Node::check_open`](crate::Node::check_open)). As with
    /// an open file of the kernel, the handle can still write if the file becomes append-only later.
    fn granted(&mut self, granted: bool) -> &mut Self {
        self.borrow_mut().granted(granted);
        self
    }
}

impl OpenGranted for FileOptions {}

/// Reads cached data without a copy in between, for a caller whose memory cannot be lent to Rust: an
/// interpreter's.
pub trait LendCached: Borrow<Handle> {
    /// The lengths of the pieces of the cache's memory that hold the `len` bytes from the position on, up to
    /// the end of the file. `None`: not all of it is cached, or another call uses the position. Never waits
    /// for the device.
    fn pieces(&self, len: u64) -> Option<Vec<usize>> {
        self.borrow().pieces(len)
    }

    /// Calls with those pieces, and moves the position past them. `None` as above, and if a call returns
    /// `false`: the position is not moved then, though a part may have been lent. **The cache's memory is
    /// locked meanwhile: a call must only copy, and not wait for anything.**
    fn lend(&self, len: u64, lend: &mut dyn FnMut(&[u8]) -> bool) -> Option<usize> {
        self.borrow().lend(len, lend)
    }
}

impl LendCached for Handle {}

/// Opens images as the programs of this workspace do.
pub trait OpenImages: BorrowMut<OpenOptions> {
    /// The kernel already holds the block device for the mount that opens it, so it is not claimed again, and
    /// not refused as mounted.
    fn held_by_mount(&mut self, held: bool) -> &mut Self {
        self.borrow_mut().held_by_mount(held);
        self
    }

    /// As [`partitions`](crate::partitions), of an image that is opened with these options.
    ///
    /// # Errors
    /// [`Error::Open`](crate::Error::Open).
    fn partitions(&self, path: &Path) -> Result<Option<PartitionTable>> {
        table(self.borrow(), path)
    }

    /// Where the volume that [`OpenOptions::open`] would open begins.
    ///
    /// # Errors
    /// [`Error::Open`](crate::Error::Open).
    fn start_bytes(&self, path: &Path) -> Result<u64> {
        Ok(located(self.borrow(), path)?.offset_bytes)
    }

    /// As [`OpenOptions::open`], on the device of a volume that is open in another partition. The caller sees
    /// to it that it is another one, and that the device was opened for writing if need be. The whole disk is
    /// refused as in use: it overlaps every partition.
    ///
    /// # Errors
    /// The same.
    fn open_beside(&self, path: &Path, other: &Volume) -> Result<Volume> {
        let located = located(self.borrow(), path)?;
        match other.disk().device().whole() {
            Some(device) if located.len_bytes.is_some() => located.on_block_device(device),
            _ => self.borrow().open(path),
        }
    }

    /// The format of the image at `path`, as it was named or by content.
    ///
    /// # Errors
    /// [`Error::Open`](crate::Error::Open).
    fn format_of(&self, path: &Path) -> Result<Format> {
        let format = self.borrow().image.detected(path);
        format.map_err(|source| Error::open(path, source))
    }

    /// The disk in the image at `path`, locked; `None` if it is the file itself.
    ///
    /// # Errors
    /// [`Error::Open`](crate::Error::Open).
    fn virtual_device(&self, path: &Path, write: bool) -> Result<Option<Arc<dyn BlockDevice>>> {
        let device = self.borrow().image.device(path, write, LockMode::of(write));
        device.map_err(|source| not_opened(path, source))
    }

    /// Makes a qcow2 image of an empty disk, in a new file.
    ///
    /// # Errors
    /// [`Error::Open`](crate::Error::Open).
    fn make_qcow2(&self, path: &Path, len_bytes: u64) -> Result<()> {
        let made = throughline_image::overlay::create_empty(path, len_bytes);
        made.map_err(|source| Error::open(path, source))
    }
}

impl OpenImages for OpenOptions {}

/// Opens devices of the device crate, which can do more than a [`Device`](crate::Device).
pub trait OpenBlockDevice: Borrow<OpenOptions> {
    /// As [`OpenOptions::open_device`].
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    fn open_block_device(&self, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        self.borrow().on_block_device(device)
    }

    /// As [`OpenOptions::open_device`], of a volume whose journal is on another device.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    fn open_with_journal(
        &self,
        device: Arc<dyn BlockDevice>,
        journal: Arc<dyn BlockDevice>,
    ) -> Result<Volume> {
        on_devices(self.borrow(), device, journal)
    }

    /// As [`OpenOptions::open_raw_device`].
    ///
    /// # Errors
    /// [`Error::Open`](crate::Error::Open).
    fn open_raw_block_device(&self, device: Arc<dyn BlockDevice>) -> Result<RawFile> {
        self.borrow().raw_on_block_device(device)
    }

    /// As [`OpenOptions::resize`].
    ///
    /// # Errors
    /// The same.
    fn resize_block_device(
        &self,
        device: Arc<dyn BlockDevice>,
        size: NewSize,
    ) -> std::result::Result<ResizeReport, ResizeError> {
        let options = self.borrow();
        let disk = options
            .disk_on(device)
            .map_err(|source| Error::open(Path::new("(device)"), source))?;
        resize_on(options.clone().write(true), &disk, size, &|_, _| ())
    }
}

impl OpenBlockDevice for OpenOptions {}
