//! [`OpenOptions`]: opens an image, a plain file or a device.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use throughline_block::{Disk, Listener};
use throughline_device::{
    BlockDevice, DeviceInfo, DeviceKind, EngineChoice, HeldByKernel, LockMode, OffsetDevice,
};
use throughline_ext::{AccessTimes, Clock, Fs, OnError, Reason, SharedClock};
use throughline_fileio::{CacheOptions, DirtyLimits};

use crate::error::{Error, Result};
use crate::mode::{FileOptions, Mode};
use crate::own::{Device, Own};
use crate::raw::RawFile;
use crate::recovery::RecoveryReport;
use crate::volume::Volume;

/// The smallest block size of an ext volume.
const SMALLEST_BLOCK_BYTES: u32 = 1024;
/// The default of the kernel's ext4.
const DEFAULT_COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// Options for opening a [`Volume`] or a [`RawFile`]. The defaults ([`OpenOptions::new`]): read-only,
/// bypassing the host's page cache, from byte 0 of the device, with an engine and I/O size that fit the
/// machine.
///
/// ```no_run
/// use throughline::OpenOptions;
///
/// # fn main() -> throughline::Result<()> {
/// let seen = OpenOptions::new().open("disk.img")?; // not changed, not even its journal
/// seen.close()?;
/// let changed = OpenOptions::new().write(true).open("disk.img")?;
/// changed.write("/etc/motd", "hello\n")?;
/// changed.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    engine: EngineChoice,
    direct: bool,
    write: bool,
    offset_bytes: u64,
    bio_target_bytes: Option<u32>,
    allow_unclean: bool,
    create: bool,
    truncate: bool,
    buffered: bool,
    cache_bytes: Option<u64>,
    dirty_limits: DirtyLimits,
    readahead_max_bytes: Option<u64>,
    commit_interval: Duration,
    access_times: AccessTimes,
    directory_access_times: bool,
    lazy_times: bool,
    synchronous: bool,
    synchronous_names: bool,
    dirty_age: Option<Duration>,
    on_error: Option<OnError>,
    discard: bool,
    no_replay: bool,
    beside_writer: bool,
    held_by_mount: bool,
    acl: bool,
    auto_da_alloc: bool,
    listener: Option<Heard>,
    clock: SharedClock,
    seed: Option<u32>,
}

/// A listener that is attached from the start.
#[derive(Clone)]
struct Heard(Arc<dyn Listener>);

impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a listener")
    }
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// The options described at the type.
    pub fn new() -> OpenOptions {
        OpenOptions {
            engine: EngineChoice::Auto,
            direct: true,
            write: false,
            offset_bytes: 0,
            bio_target_bytes: None,
            allow_unclean: false,
            create: false,
            truncate: false,
            buffered: true,
            cache_bytes: None,
            dirty_limits: DirtyLimits::default(),
            readahead_max_bytes: None,
            commit_interval: DEFAULT_COMMIT_INTERVAL,
            access_times: AccessTimes::default(),
            directory_access_times: true,
            lazy_times: false,
            synchronous: false,
            synchronous_names: false,
            dirty_age: None,
            on_error: None,
            discard: false,
            no_replay: false,
            beside_writer: false,
            held_by_mount: false,
            acl: true,
            auto_da_alloc: true,
            listener: None,
            clock: SharedClock::SYSTEM,
            seed: None,
        }
    }

    /// The engine that drives the device.
    pub fn engine(&mut self, engine: EngineChoice) -> &mut Self {
        self.engine = engine;
        self
    }

    /// Bypasses the host's page cache if the file allows it (the default).
    pub fn direct(&mut self, direct: bool) -> &mut Self {
        self.direct = direct;
        self
    }

    /// Opens for writing too; the default is read-only. An image may be open either for several readers or
    /// for one writer.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// Where the volume begins in the file or device, in bytes, such as a partition's start. A multiple of
    /// the logical block size.
    pub fn offset(&mut self, offset_bytes: u64) -> &mut Self {
        self.offset_bytes = offset_bytes;
        self
    }

    /// Target size of data I/Os, in bytes; `None` derives it from the device.
    pub fn bio_target(&mut self, bytes: Option<u32>) -> &mut Self {
        self.bio_target_bytes = bytes;
        self
    }

    /// Allows writing although the volume has recorded errors. Running `e2fsck` is the better choice.
    pub fn allow_unclean(&mut self, allow: bool) -> &mut Self {
        self.allow_unclean = allow;
        self
    }

    /// Memory for the page cache, in bytes; `None` takes a quarter of the memory available to the process.
    pub fn cache_bytes(&mut self, bytes: Option<u64>) -> &mut Self {
        self.cache_bytes = bytes;
        self
    }

    /// How much memory may be dirty, and the threshold for background write-back.
    pub fn dirty_limits(&mut self, limits: DirtyLimits) -> &mut Self {
        self.dirty_limits = limits;
        self
    }

    /// Largest readahead window, in bytes (0 disables readahead); `None` derives it from the device.
    pub fn readahead_max(&mut self, bytes: Option<u64>) -> &mut Self {
        self.readahead_max_bytes = bytes;
        self
    }

    /// The longest time until a change of names, sizes or attributes is durable without a sync (5 s, as in
    /// the kernel). Without a journal, the time until it is in place.
    pub fn commit_interval(&mut self, interval: Duration) -> &mut Self {
        self.commit_interval = interval;
        self
    }

    /// When reading a file, a directory or a symbolic link updates its access time. The default is never. A
    /// new access time is kept in memory until the inode changes otherwise, a sync, or closing the volume;
    /// while other inodes are being read, for half a minute at most.
    pub fn access_times(&mut self, when: AccessTimes) -> &mut Self {
        self.access_times = when;
        self
    }

    /// Whether reading directories updates their access times too, if [`OpenOptions::access_times`] enables
    /// them (the default; `false` is `nodiratime`).
    pub fn directory_access_times(&mut self, set: bool) -> &mut Self {
        self.directory_access_times = set;
        self
    }

    /// If only an inode's timestamps change, even by a write, they are kept in memory until the inode changes
    /// otherwise, a sync, closing the volume, or for a day (`lazytime`).
    pub fn lazy_times(&mut self, lazy: bool) -> &mut Self {
        self.lazy_times = lazy;
        self
    }

    /// Every change is durable when its call returns (`sync`). For a write this covers data and size;
    /// timestamps follow later.
    pub fn synchronous(&mut self, synchronous: bool) -> &mut Self {
        self.synchronous = synchronous;
        self
    }

    /// Every change of names is durable when its call returns (`dirsync`).
    pub fn synchronous_names(&mut self, synchronous: bool) -> &mut Self {
        self.synchronous_names = synchronous;
        self
    }

    /// How long file data may stay dirty before it is written back by age (30 s). [`Volume::set_dirty_age`]
    /// changes it later.
    pub fn dirty_age(&mut self, age: Duration) -> &mut Self {
        self.dirty_age = Some(age);
        self
    }

    /// Everything is durable after this time at the latest, if the device keeps up (`commit=` of a mount):
    /// data is written back after a quarter of it ([`OpenOptions::dirty_age`]), and a change is committed
    /// after half of it ([`OpenOptions::commit_interval`]). The rest is for the polling interval and for the
    /// writing itself.
    pub fn durable_within(&mut self, time: Duration) -> &mut Self {
        self.dirty_age(time / 4).commit_interval(time / 2)
    }

    /// The reaction to damage found while the volume is open for writing (`errors=` of a mount). `None`, the
    /// default, takes the superblock's setting. The error is recorded in any case. [`OnError::Panic`] is
    /// treated as [`OnError::RemountRo`].
    pub fn on_error(&mut self, on_error: Option<OnError>) -> &mut Self {
        self.on_error = on_error;
        self
    }

    /// Discards blocks that commits have freed (`discard` of a mount): an image file gets holes, a disk gets
    /// discard requests. Off by default; [`Volume::trim`] discards all free space once.
    pub fn discard(&mut self, discard: bool) -> &mut Self {
        self.discard = discard;
        self
    }

    /// Read-only: shows the volume without its journal (`noload`). The result may be a state that never
    /// existed.
    pub fn no_replay(&mut self, no_replay: bool) -> &mut Self {
        self.no_replay = no_replay;
        self
    }

    /// Read-only: opens the volume although another process writes it, and takes no lock. Each read returns
    /// what is on the device at that moment. So a superblock and its counts are consistent, but structures
    /// that span several blocks may not be. Use it with [`OpenOptions::no_replay`].
    pub fn beside_writer(&mut self, beside: bool) -> &mut Self {
        self.beside_writer = beside;
        self
    }

    /// The kernel already holds the block device, for a mount that this volume will serve: it is not claimed
    /// again, and being mounted is no reason to refuse it.
    pub fn held_by_mount(&mut self, held: bool) -> &mut Self {
        self.held_by_mount = held;
        self
    }

    /// Whether access control lists (POSIX ACLs) are kept, updated with the permissions, and inherited (the
    /// default; `false` is `noacl`). Without this, existing lists stay as they are, and requests for one fail
    /// with [`Error::Unsupported`].
    pub fn acl(&mut self, acl: bool) -> &mut Self {
        self.acl = acl;
        self
    }

    /// Whether a file replaced without a sync has either its old or its new contents after a crash (the
    /// default; `false` is `noauto_da_alloc`). It applies to a file that is renamed over, or truncated and
    /// rewritten. A rename over a file therefore waits until the new contents are on the device; without a
    /// journal, until they are durable.
    pub fn auto_da_alloc(&mut self, whole: bool) -> &mut Self {
        self.auto_da_alloc = whole;
        self
    }

    /// Source of the timestamps that are written to the volume, in place of the system clock. Any `Fn() ->
    /// SystemTime` works.
    pub fn clock(&mut self, clock: impl Clock + 'static) -> &mut Self {
        self.clock = SharedClock::new(clock);
        self
    }

    /// Seeds the volume's random choices: the generations of new inodes, and the placement of new directories
    /// in the root.
    ///
    /// With this and your own [`OpenOptions::clock`], **the same calls on the same image give the same
    /// bytes**, if one thread makes them, files are not [`OpenOptions::buffered`] (the timing of background
    /// write-back varies), and nothing is committed by age ([`OpenOptions::commit_interval`]).
    pub fn seed(&mut self, seed: u32) -> &mut Self {
        self.seed = Some(seed);
        self
    }

    /// Whether files go through this library's cache (the default): the handle of [`OpenOptions::open_raw`],
    /// and files of a volume opened without [`FileOptions`]. `reopen` gives the other kind.
    /// [`OpenOptions::direct`] is about the *host's* cache instead.
    pub fn buffered(&mut self, buffered: bool) -> &mut Self {
        self.buffered = buffered;
        self
    }

    /// Traces every I/O of the device to `listener`, from opening to closing. [`Volume::subscribe`] attaches
    /// a listener later, for a limited time.
    pub fn listener(&mut self, listener: Option<Arc<dyn Listener>>) -> &mut Self {
        self.listener = listener.map(Heard);
        self
    }

    /// [`OpenOptions::open_raw`] creates a plain file if there is none. Requires [`OpenOptions::write`].
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// [`OpenOptions::open_raw`] truncates a plain file to zero length, once it is locked. Requires
    /// [`OpenOptions::write`].
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Opens a volume.
    ///
    /// A volume that was not closed, and whose journal needs recovery, is recovered if it is opened for
    /// writing ([`Volume::recovery`] has the details). Opened read-only, it is shown as if recovered, and not
    /// modified.
    ///
    /// # Errors
    /// [`Error::Open`] if the file cannot be opened or locked (the text names the lock's holder if known);
    /// [`Error::Corrupt`] if it is not an ext2, ext3 or ext4 volume, or a damaged one; [`Error::Unsupported`]
    /// for unknown features, by name; for writing, also for features that are supported read-only and for a
    /// volume that `e2fsck` must check; [`Reason::Busy`] if another process has it open for writing, naming
    /// that process; for writing, [`Reason::InUse`] if the kernel uses it (readers can ask
    /// [`kernel_holder`](crate::kernel_holder)).
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let disk = self.disk(path)?;
        let through_cache = self.direct && is_coarse_file(disk.info());
        match self.open_on(disk) {
            // Its blocks may be smaller than the unit of direct I/O on the host's file system.
            Err(Error::Unsupported(_)) if through_cache => self.clone().direct(false).open(path),
            opened => opened,
        }
    }

    /// Opens the volume on an open file or block device of the host: a `std::fs::File`, or any other owner of
    /// a descriptor. A lock held on the descriptor counts as this volume's. Requires `/proc`.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; [`Error::Open`] with [`io::ErrorKind::PermissionDenied`] if writing is
    /// requested and the descriptor is read-only.
    pub fn open_fd(&self, fd: impl Into<OwnedFd>) -> Result<Volume> {
        let fd = fd.into();
        self.open(self.path_of(&fd)?)
    }

    /// As [`OpenOptions::open_raw`], on an open file or block device of the host, as with
    /// [`OpenOptions::open_fd`].
    ///
    /// # Errors
    /// The same.
    pub fn open_raw_fd(&self, fd: impl Into<OwnedFd>) -> Result<RawFile> {
        let fd = fd.into();
        self.open_raw(self.path_of(&fd)?)
    }

    /// The `/proc` path of a descriptor, which the device layer recognizes.
    fn path_of(&self, fd: &OwnedFd) -> Result<PathBuf> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let flags =
            rustix::fs::fcntl_getfl(fd).map_err(|errno| Error::open(&path, errno.into()))?;
        if self.write && flags & OFlags::RWMODE == OFlags::RDONLY {
            let why = "the descriptor is open for reading only";
            let denied = io::Error::new(io::ErrorKind::PermissionDenied, why);
            return Err(Error::open(&path, denied));
        }
        Ok(path)
    }

    /// Opens a volume on your own [`Device`]. [`OpenOptions::offset`] applies; engine, direct I/O and locking
    /// are up to the device.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_device(&self, device: impl Device + 'static) -> Result<Volume> {
        let own = Own::new(device).map_err(|source| self.failed_device(source))?;
        self.open_block_device(Arc::new(own))
    }

    /// As [`OpenOptions::open_device`], on a device of the device crate: for this workspace's tests and
    /// measurements.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    #[doc(hidden)]
    pub fn open_block_device(&self, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        self.open_on(
            self.disk_on(device)
                .map_err(|source| self.failed_device(source))?,
        )
    }

    fn failed_device(&self, source: io::Error) -> Error {
        Error::open(Path::new("(device)"), source)
    }

    fn open_on(&self, disk: Arc<Disk>) -> Result<Volume> {
        let mut options = throughline_ext::OpenOptions::default();
        options.write = self.write;
        options.allow_unclean = self.allow_unclean;
        options.commit_interval = self.commit_interval;
        options.access_times = self.access_times;
        options.directory_access_times = self.directory_access_times;
        options.lazy_times = self.lazy_times;
        options.synchronous = self.synchronous;
        options.synchronous_names = self.synchronous_names;
        options.dirty_age = self.dirty_age;
        options.on_error = self.on_error;
        options.no_replay = self.no_replay;
        options.acl = self.acl;
        options.auto_da_alloc = self.auto_da_alloc;
        options.clock = self.clock.clone();
        options.seed = self.seed;
        options.cache = self.cache_options();
        if let Some(bytes) = self.cache_bytes {
            options.metadata_cache_bytes = metadata_bytes(bytes);
        }
        let fs = Fs::open(disk, &options)?;
        if let Some(why) = fs.read_only_reason().filter(|_| self.write) {
            return Err(Error::Unsupported(format!("writing: {why}")));
        }
        let volume = Volume::new(fs, self.mode());
        if self.discard {
            volume.fs().discard_freed();
        }
        Ok(volume)
    }

    /// Completes what a crash interrupted, and nothing else: replays the journal, frees files without names,
    /// finishes truncations, and closes the volume. A volume that needs no recovery is not modified.
    ///
    /// # Errors
    /// As [`OpenOptions::open`] and [`Volume::close`].
    pub fn recover(&self, path: impl AsRef<Path>) -> Result<RecoveryReport> {
        let path = path.as_ref();
        let mut options = self.clone();
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
        let disk = self.disk_with(path.as_ref(), self.create, self.truncate)?;
        Ok(self.raw(disk))
    }

    /// As [`OpenOptions::open_raw`], on your own [`Device`]. [`OpenOptions::offset`] applies; engine, direct
    /// I/O and locking are up to the device.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub fn open_raw_device(&self, device: impl Device + 'static) -> Result<RawFile> {
        let own = Own::new(device).map_err(|source| self.failed_device(source))?;
        self.open_raw_block_device(Arc::new(own))
    }

    /// As [`OpenOptions::open_raw_device`], on a device of the device crate: for this workspace's tests and
    /// measurements.
    ///
    /// # Errors
    /// [`Error::Open`].
    #[doc(hidden)]
    pub fn open_raw_block_device(&self, device: Arc<dyn BlockDevice>) -> Result<RawFile> {
        let disk = self
            .disk_on(device)
            .map_err(|source| self.failed_device(source))?;
        Ok(self.raw(disk))
    }

    fn raw(&self, disk: Arc<Disk>) -> RawFile {
        let file = throughline_fileio::RawFile::with_cache(disk, self.cache_options());
        RawFile::new(file, self.mode())
    }

    fn mode(&self) -> Mode {
        FileOptions::new().direct(!self.buffered).mode()
    }

    fn cache_options(&self) -> CacheOptions {
        let mut options = CacheOptions::default();
        options.budget_bytes = self.cache_bytes;
        options.dirty = self.dirty_limits;
        options.readahead_max_bytes = self.readahead_max_bytes;
        options
    }

    fn disk(&self, path: &Path) -> Result<Arc<Disk>> {
        self.disk_with(path, false, false)
    }

    fn disk_with(&self, path: &Path, create: bool, truncate: bool) -> Result<Arc<Disk>> {
        if !self.write && (create || truncate) {
            let why = "a file is created or emptied only where it is opened for writing";
            return Err(Reason::Invalid(why).into());
        }
        let failed = |source: io::Error| {
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
        };
        let lock = match (self.write, self.beside_writer) {
            (false, true) => LockMode::None,
            (false, false) => LockMode::Shared,
            (true, _) => LockMode::Exclusive,
        };
        let open = |direct| {
            throughline_device::OpenOptions::new()
                .engine(self.engine)
                .direct(direct)
                .write(self.write)
                .create(create)
                .truncate(truncate)
                .lock(lock)
                .begin_bytes(self.offset_bytes)
                .claim(!self.held_by_mount)
                .open(path)
                .map_err(failed)
        };
        let mut device = open(self.direct)?;
        let unit = u64::from(device.info().limits.logical_block_bytes);
        if is_coarse_file(device.info()) && !self.offset_bytes.is_multiple_of(unit) {
            drop(device); // and its lock
            device = open(false)?;
        }
        self.disk_on(device).map_err(failed)
    }

    fn disk_on(&self, device: Arc<dyn BlockDevice>) -> io::Result<Arc<Disk>> {
        let device = if self.offset_bytes == 0 {
            device
        } else {
            Arc::new(OffsetDevice::new(device, self.offset_bytes, None)?)
        };
        let disk = Disk::new(device).map_err(io::Error::other)?;
        disk.set_bio_target_bytes(self.bio_target_bytes);
        if let Some(Heard(listener)) = &self.listener {
            disk.listen(Arc::clone(listener));
        }
        Ok(Arc::new(disk))
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
