//! How [`OpenOptions`] opens: the device with its lock, then the volume or the raw file on it.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use throughline_block::Disk;
use throughline_device::{
    BlockDevice, DeviceInfo, DeviceKind, HeldByKernel, LockMode, OffsetDevice,
};
use throughline_ext::{Fs, JournalDevice, Reason};
use throughline_fileio::CacheOptions;

use super::{Attached, OpenOptions, located, object};
use crate::error::{Error, Result};
use crate::mode::{FileOptions, Mode};
use crate::overlay::remove_unused;
use crate::own::{Device, Own};
use crate::raw::RawFile;
use crate::recovery::RecoveryReport;
use crate::volume::Volume;

/// The smallest block size of an ext volume.
const SMALLEST_BLOCK_BYTES: u32 = 1024;

/// Opens a volume, and its journal's device.
pub(crate) fn on_devices(
    options: &OpenOptions,
    device: Arc<dyn BlockDevice>,
    journal: Arc<dyn BlockDevice>,
) -> Result<Volume> {
    let mut options = options.clone();
    options.volume.fs.journal = Some(JournalDevice(journal));
    options.on_block_device(device)
}

impl OpenOptions {
    /// Opens a volume.
    ///
    /// A volume that was not closed, and whose journal needs recovery, is recovered if it is opened for
    /// writing ([`Volume::recovery`] has the details). Opened read-only, it is shown as if recovered, and not
    /// modified.
    ///
    /// # Errors
    /// [`Error::Open`] if the file cannot be opened or locked (the text names the lock's holder if known);
    /// [`Reason::NotExt`] if it is not an ext2, ext3 or ext4 volume; [`Error::Corrupt`] for a damaged one;
    /// [`Error::Unsupported`] for unknown features, by name; for writing, also for features that are
    /// supported read-only and for a volume that `e2fsck` must check; [`Reason::Busy`] if another process
    /// has it open for writing, naming that process; for writing, [`Reason::InUse`] if the kernel uses it
    /// (readers can ask [`kernel_holder`](crate::kernel_holder)).
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let new_overlay = (self.image.overlay_path()).filter(|overlay| !overlay.exists());
        let opened = open(self, path);
        if let (Err(_), Some(overlay)) = (&opened, new_overlay) {
            // It was made for nothing.
            let _ = remove_unused(overlay);
        }
        opened
    }

    /// Opens the volume on an open file or block device of the host: a `std::fs::File`, or any other owner of
    /// a descriptor. A lock held on the descriptor counts as this volume's. Requires `/proc`.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; [`Error::Open`] with [`io::ErrorKind::PermissionDenied`] if writing is
    /// requested and the descriptor is read-only.
    pub fn open_fd(&self, fd: impl Into<OwnedFd>) -> Result<Volume> {
        let fd = fd.into();
        self.open(path_of(&fd, self.write)?)
    }

    /// As [`OpenOptions::open_raw`], on an open file or block device of the host, as with
    /// [`OpenOptions::open_fd`].
    ///
    /// # Errors
    /// The same.
    pub fn open_raw_fd(&self, fd: impl Into<OwnedFd>) -> Result<RawFile> {
        let fd = fd.into();
        self.open_raw(path_of(&fd, self.write)?)
    }

    /// Opens a volume on your own [`Device`]. [`OpenOptions::offset`] applies; engine, direct I/O and locking
    /// are up to the device.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_device(&self, device: impl Device + 'static) -> Result<Volume> {
        let own = Own::new(device).map_err(failed_device)?;
        self.on_block_device(Arc::new(own))
    }

    pub(crate) fn on_block_device(&self, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        self.open_on(self.disk_on(device).map_err(failed_device)?)
    }

    pub(crate) fn open_on(&self, disk: Arc<Disk>) -> Result<Volume> {
        let mut options = self.volume.fs.clone();
        options.write = self.write;
        options.allow_unclean = self.allow_unclean;
        options.over_hash_tree = self.image.overlay_path().is_some();
        options.no_replay = self.no_replay;
        options.cache = self.cache_options();
        if let Some(bytes) = self.cache_bytes {
            options.metadata_cache_bytes = metadata_bytes(bytes);
        }
        if let Some(journal) = self.journal_device()? {
            options.journal = Some(JournalDevice(journal));
        }
        let fs = Fs::open(disk, &options)?;
        if let Some(why) = fs.read_only_reason().filter(|_| self.write) {
            return Err(Error::Unsupported(format!("writing: {why}")));
        }
        let volume = Volume::new(fs, self.mode());
        if self.volume.discard {
            volume.fs().discard_freed();
        }
        Ok(volume)
    }

    /// The device of an external journal, if one is named.
    fn journal_device(&self) -> Result<Option<Arc<dyn BlockDevice>>> {
        let Some(path) = &self.volume.journal else {
            return Ok(None);
        };
        let open = |direct| {
            let device = throughline_device::OpenOptions::new()
                .engine(self.engine)
                .direct(direct)
                .write(self.write)
                .lock(lock(self.write, self.beside_writer))
                .open(path);
            device.map_err(|source| not_opened(path, source))
        };
        let mut device = open(!self.through_host_cache)?;
        if is_coarse_file(device.info()) {
            drop(device); // and its lock
            device = open(false)?;
        }
        Ok(Some(device))
    }

    /// Completes what a crash interrupted, and nothing else: replays the journal, frees files without names,
    /// finishes truncations, and closes the volume. A volume that needs no recovery is not modified.
    ///
    /// # Errors
    /// As [`OpenOptions::open`] and [`Volume::close`].
    pub fn recover(&self, path: impl AsRef<Path>) -> Result<RecoveryReport> {
        let path = path.as_ref();
        let mut options = self.clone();
        // A crash may also have left the tables of the image behind; who opens it for writing mends them.
        let tables = (self.image).device(path, true, LockMode::Exclusive);
        drop(tables.map_err(|source| not_opened(path, source))?);
        let before = options.write(false).no_replay(true).open(path)?;
        let needed = before.fs().needs_recovery();
        let mut state = RecoveryReport::of(&before);
        before.close()?;
        if !needed {
            return Ok(state);
        }
        options.write(true).no_replay(false).allow_unclean(true);
        let volume = options.open(path)?;
        state = RecoveryReport::of(&volume);
        volume.close()?;
        Ok(state)
    }

    /// Opens a plain file or a block device as it is.
    ///
    /// # Errors
    /// [`Error::Open`]; [`Reason::Invalid`] if creating or truncating is requested without writing.
    pub fn open_raw(&self, path: impl AsRef<Path>) -> Result<RawFile> {
        let path = path.as_ref();
        let disk = match object::device(path, self.write) {
            Some(device) => device.and_then(|device| self.disk_on(device)),
            None => return Ok(self.raw(self.disk_with(path, self.create, self.truncate)?)),
        };
        Ok(self.raw(disk.map_err(|source| not_opened(path, source))?))
    }

    /// As [`OpenOptions::open_raw`], on your own [`Device`]. [`OpenOptions::offset`] applies; engine, direct
    /// I/O and locking are up to the device.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub fn open_raw_device(&self, device: impl Device + 'static) -> Result<RawFile> {
        let own = Own::new(device).map_err(failed_device)?;
        self.raw_on_block_device(Arc::new(own))
    }

    pub(crate) fn raw_on_block_device(&self, device: Arc<dyn BlockDevice>) -> Result<RawFile> {
        let disk = self.disk_on(device).map_err(failed_device)?;
        Ok(self.raw(disk))
    }

    fn raw(&self, disk: Arc<Disk>) -> RawFile {
        let file = throughline_fileio::RawFile::with_cache(disk, self.cache_options());
        RawFile::new(file, self.mode())
    }

    fn mode(&self) -> Mode {
        FileOptions::new().direct(self.unbuffered).mode()
    }

    fn cache_options(&self) -> CacheOptions {
        let mut options = CacheOptions::default();
        options.budget_bytes = self.cache_bytes;
        options.dirty = self.dirty_limits;
        options.readahead_max_bytes = self.readahead_max_bytes;
        options
    }

    pub(crate) fn disk(&self, path: &Path) -> Result<Arc<Disk>> {
        let failed = |source| not_opened(path, source);
        let lock = lock(self.write, self.beside_writer);
        match self.image.device(path, self.write, lock).map_err(failed)? {
            Some(device) => self.disk_on(device).map_err(failed),
            None => self.disk_with(path, false, false),
        }
    }

    fn disk_with(&self, path: &Path, create: bool, truncate: bool) -> Result<Arc<Disk>> {
        if !self.write && (create || truncate) {
            let why = "creating or truncating a file requires opening it for writing";
            return Err(Reason::Invalid(why).into());
        }
        let failed = |source| not_opened(path, source);
        let open = |direct| {
            throughline_device::OpenOptions::new()
                .engine(self.engine)
                .direct(direct)
                .write(self.write)
                .create(create)
                .truncate(truncate)
                .lock(lock(self.write, self.beside_writer))
                .begin_bytes(self.offset_bytes)
                .claim(!self.held_by_mount)
                .open(path)
                .map_err(failed)
        };
        let mut device = open(!self.through_host_cache)?;
        let unit = u64::from(device.info().limits.logical_block_bytes);
        let edges = [self.offset_bytes, self.len_bytes.unwrap_or(0)];
        let is_aligned = edges.iter().all(|edge| edge.is_multiple_of(unit));
        if is_coarse_file(device.info()) && !is_aligned {
            drop(device); // and its lock
            device = open(false)?;
        }
        self.disk_on(device).map_err(failed)
    }

    pub(crate) fn disk_on(&self, device: Arc<dyn BlockDevice>) -> io::Result<Arc<Disk>> {
        let device = if self.offset_bytes == 0 && self.len_bytes.is_none() {
            device
        } else {
            let window = OffsetDevice::new(device, self.offset_bytes, self.len_bytes)?;
            Arc::new(window)
        };
        let disk = Disk::new(device).map_err(io::Error::other)?;
        disk.set_bio_target_bytes(self.bio_target_bytes);
        if let Some(Attached(listener)) = &self.listener {
            disk.listen(Arc::clone(listener));
        }
        Ok(Arc::new(disk))
    }
}

fn open(options: &OpenOptions, path: &Path) -> Result<Volume> {
    // An object is not found again by each look at it.
    let held = object::open(path).transpose();
    let _held = held.map_err(|source| not_opened(path, source))?;
    let mut located = located(options, path)?;
    let disk = located.disk(path)?;
    let through_cache = !options.through_host_cache && is_coarse_file(disk.info());
    match located.open_on(disk) {
        // Its blocks may be smaller than the unit of direct I/O on the host's file system.
        Err(Error::Unsupported(_)) if through_cache => {
            located.direct(false);
            located.open_on(located.disk(path)?)
        }
        opened => opened,
    }
}

/// The `/proc` path of a descriptor, which the device layer recognizes.
fn path_of(fd: &OwnedFd, write: bool) -> Result<PathBuf> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let flags = rustix::fs::fcntl_getfl(fd).map_err(|errno| Error::open(&path, errno.into()))?;
    if write && flags & OFlags::RWMODE == OFlags::RDONLY {
        let why = "the descriptor is open for reading only";
        let denied = io::Error::new(io::ErrorKind::PermissionDenied, why);
        return Err(Error::open(&path, denied));
    }
    Ok(path)
}

fn failed_device(source: io::Error) -> Error {
    Error::open(Path::new("(device)"), source)
}

/// The lock on a file that is opened so.
fn lock(write: bool, beside_writer: bool) -> LockMode {
    match beside_writer && !write {
        true => LockMode::None,
        false => LockMode::of(write),
    }
}

/// Why a file could not be opened.
pub(crate) fn not_opened(path: &Path, source: io::Error) -> Error {
    let inner = source.get_ref();
    if let Some(held) = inner.and_then(|why| why.downcast_ref::<HeldByKernel>()) {
        return Error::Caller(Reason::InUse {
            who: held.to_string(),
            next: held.by().next().to_owned(),
        });
    }
    match source.kind() {
        io::ErrorKind::ResourceBusy => Error::Caller(Reason::Busy(source.to_string())),
        _ => Error::open(path, source),
    }
}

/// A host file whose direct I/O unit is larger than a volume's smallest block.
fn is_coarse_file(info: &DeviceInfo) -> bool {
    let coarse = info.limits.logical_block_bytes > SMALLEST_BLOCK_BYTES;
    info.direct && coarse && info.kind == DeviceKind::RegularFile
}

/// Memory for metadata beside a page cache of this size: a quarter as much, with a minimum that avoids
/// rereading directories on every look-up and a maximum past which more does not help.
fn metadata_bytes(cache_bytes: u64) -> usize {
    const SENSIBLE: RangeInclusive<u64> = 8 << 20..=32 << 20;
    (cache_bytes / 4).clamp(*SENSIBLE.start(), *SENSIBLE.end()) as usize
}
