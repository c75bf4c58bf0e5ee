//! How an image, a plain file or a device is opened.

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

/// No ext volume has smaller blocks.
const SMALLEST_BLOCK_BYTES: u32 = 1024;
/// As the kernel's ext4 commits.
const DEFAULT_COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// Options for opening a [`Volume`] or a [`RawFile`]. As made by [`OpenOptions::new`]: for reading only, past the host's page
/// cache, from the device's beginning, with the engine and the I/O size that fit the machine.
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

/// Who listens from the beginning.
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

    /// How the device is driven.
    pub fn engine(&mut self, engine: EngineChoice) -> &mut Self {
        self.engine = engine;
        self
    }

    /// Past the host's page cache, where the file allows it (the default).
    pub fn direct(&mut self, direct: bool) -> &mut Self {
        self.direct = direct;
        self
    }

    /// For writing too; for reading only without. Several readers may have an image open at once, while nobody writes it, or one
    /// writer alone.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// Where it begins inside the file or device, in bytes: a partition's start. A multiple of the logical block.
    pub fn offset(&mut self, offset_bytes: u64) -> &mut Self {
        self.offset_bytes = offset_bytes;
        self
    }

    /// Size that data I/Os are built up to, in bytes; `None` derives it from the device.
    pub fn bio_target(&mut self, bytes: Option<u32>) -> &mut Self {
        self.bio_target_bytes = bytes;
        self
    }

    /// Write although the volume has recorded errors. `e2fsck` should run instead.
    pub fn allow_unclean(&mut self, allow: bool) -> &mut Self {
        self.allow_unclean = allow;
        self
    }

    /// Memory for the page cache, in bytes; `None` takes a quarter of what the process may use.
    pub fn cache_bytes(&mut self, bytes: Option<u64>) -> &mut Self {
        self.cache_bytes = bytes;
        self
    }

    /// How much memory may be dirty, and from where on it is written back without being asked.
    pub fn dirty_limits(&mut self, limits: DirtyLimits) -> &mut Self {
        self.dirty_limits = limits;
        self
    }

    /// The longest that is read ahead, in bytes (0: nothing); `None` derives it from the device.
    pub fn readahead_max(&mut self, bytes: Option<u64>) -> &mut Self {
        self.readahead_max_bytes = bytes;
        self
    }

    /// A change of names, sizes or attributes is durable after this time at the latest, if no sync asked for it before
    /// (5 s, as the kernel's). Without a journal: it is in place then.
    pub fn commit_interval(&mut self, interval: Duration) -> &mut Self {
        self.commit_interval = interval;
        self
    }

    /// When reading a file, a directory or a symbolic link sets its access time; never, unless this says so. Access times are
    /// kept in memory until something else of the inode changes, a sync or closing the volume, or for half a minute while
    /// others are read.
    pub fn access_times(&mut self, when: AccessTimes) -> &mut Self {
        self.access_times = when;
        self
    }

    /// Whether reading directories sets their access times too, where [`OpenOptions::access_times`] has any set (the
    /// default; `nodiratime` without).
    pub fn directory_access_times(&mut self, set: bool) -> &mut Self {
        self.directory_access_times = set;
        self
    }

    /// Times that change alone, those of writes too, are kept in memory until something else of the inode changes, a sync or
    /// closing the volume, or for a day (`lazytime`).
    pub fn lazy_times(&mut self, lazy: bool) -> &mut Self {
        self.lazy_times = lazy;
        self
    }

    /// Every change is durable when its call returns (`sync`); of a write, its data and its size, times later.
    pub fn synchronous(&mut self, synchronous: bool) -> &mut Self {
        self.synchronous = synchronous;
        self
    }

    /// Every change of names is durable when its call returns (`dirsync`).
    pub fn synchronous_names(&mut self, synchronous: bool) -> &mut Self {
        self.synchronous_names = synchronous;
        self
    }

    /// How long file data may be dirty before it is written without another reason (30 s). [`Volume::set_dirty_age`] changes
    /// it later.
    pub fn dirty_age(&mut self, age: Duration) -> &mut Self {
        self.dirty_age = Some(age);
        self
    }

    /// Everything that is done is durable after this time at the latest, if the device keeps up (`commit=` of a mount):
    /// data goes out after a quarter of it ([`OpenOptions::dirty_age`]), and a change is committed after half of it
    /// ([`OpenOptions::commit_interval`]). The rest is for the looks between, and for the writing.
    pub fn durable_within(&mut self, time: Duration) -> &mut Self {
        self.dirty_age(time / 4).commit_interval(time / 2)
    }

    /// What follows when damage is found while the volume is open for writing (`errors=` of a mount); `None`, the default:
    /// what its superblock says. It is recorded in any case. [`OnError::Panic`] is taken for [`OnError::RemountRo`].
    pub fn on_error(&mut self, on_error: Option<OnError>) -> &mut Self {
        self.on_error = on_error;
        self
    }

    /// Blocks that commits have freed are discarded (`discard` of a mount): the image file gets holes there, a disk is told.
    /// Off by default; [`Volume::trim`] does it once for all that is free.
    pub fn discard(&mut self, discard: bool) -> &mut Self {
        self.discard = discard;
        self
    }

    /// For reading: show the volume as it lies, without regard to what its journal holds (`noload`). It may then look as no
    /// one ever saw it.
    pub fn no_replay(&mut self, no_replay: bool) -> &mut Self {
        self.no_replay = no_replay;
        self
    }

    /// For reading: open it although somebody else writes it, and lock nothing. What is seen is what lies on the device at each
    /// look, so that a superblock and its counts make sense, and what hangs together over several blocks may not. Goes with
    /// [`OpenOptions::no_replay`].
    pub fn beside_writer(&mut self, beside: bool) -> &mut Self {
        self.beside_writer = beside;
        self
    }

    /// The kernel holds the block device already, for a mount that this volume will serve: it is not asked for again, and that
    /// it is mounted is no reason to refuse it.
    pub fn held_by_mount(&mut self, held: bool) -> &mut Self {
        self.held_by_mount = held;
        self
    }

    /// Whether lists of access rights (POSIX ACLs) are kept, follow the permissions, and are inherited (the default; `noacl`).
    /// Without, those that are there stay as they are, and asking for one is [`Error::Unsupported`].
    pub fn acl(&mut self, acl: bool) -> &mut Self {
        self.acl = acl;
        self
    }

    /// Whether a file that is replaced is whole after a crash, its old content or the new one, without a sync (the default;
    /// `noauto_da_alloc`): one that another file is renamed over, or that is emptied and written anew. A rename over a file
    /// waits until the new content is on the device for that, and where there is no journal until it is durable.
    pub fn auto_da_alloc(&mut self, whole: bool) -> &mut Self {
        self.auto_da_alloc = whole;
        self
    }

    /// Where the time comes from that is written to the volume, in place of the system's: any `Fn() -> SystemTime` will do.
    pub fn clock(&mut self, clock: impl Clock + 'static) -> &mut Self {
        self.clock = SharedClock::new(clock);
        self
    }

    /// Where the volume's own choices begin that are random otherwise: the generations of new inodes, and where new directories of
    /// the root are put.
    ///
    /// With this and a [`OpenOptions::clock`] of the caller's, **the same calls on the same image give the same bytes**, as long as
    /// one thread makes them, files are not [`OpenOptions::buffered`] (what is written in the background takes its time), and
    /// nothing is committed by age ([`OpenOptions::commit_interval`]).
    pub fn seed(&mut self, seed: u32) -> &mut Self {
        self.seed = Some(seed);
        self
    }

    /// Whether files go through the cache (the default): the handle of [`OpenOptions::open_raw`], and files of a volume that
    /// are opened without [`FileOptions`]. `reopen` gives the other kind. Not to be confused with [`OpenOptions::direct`], which is about the *host's* cache.
    pub fn buffered(&mut self, buffered: bool) -> &mut Self {
        self.buffered = buffered;
        self
    }

    /// Tells `listener` of every I/O of the device, those of opening and closing among them, until it is closed.
    /// [`Volume::subscribe`] does so later, and for a time.
    pub fn listener(&mut self, listener: Option<Arc<dyn Listener>>) -> &mut Self {
        self.listener = listener.map(Heard);
        self
    }

    /// [`OpenOptions::open_raw`] makes a plain file where there is nothing. Needs [`OpenOptions::write`].
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// [`OpenOptions::open_raw`] empties a plain file, once it is locked. Needs [`OpenOptions::write`].
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Opens a volume.
    ///
    /// One that was not closed, and whose journal needs recovery, is recovered when it is opened for writing
    /// ([`Volume::recovery`] says what was done); for reading, it is shown as it will be, and not touched.
    ///
    /// # Errors
    /// [`Error::Open`] for a file that cannot be opened or locked (the text names who has it, where that is known);
    /// [`Error::Corrupt`] for what is no ext2, ext3 or ext4 volume or a damaged one; [`Error::Unsupported`] for unknown
    /// features, by name, and, for writing, for features that can only be read and for a volume that `e2fsck` has to check;
    /// [`Reason::Busy`] for one that somebody else writes, naming them; for writing, [`Reason::InUse`] for one that the kernel
    /// has ([`kernel_holder`](crate::kernel_holder) tells the same to a reader).
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let disk = self.disk(path)?;
        let through_cache = self.direct && is_coarse_file(disk.info());
        match self.open_on(disk) {
            // Its blocks may be smaller than what the host's file system moves past its cache.
            Err(Error::Unsupported(_)) if through_cache => self.clone().direct(false).open(path),
            opened => opened,
        }
    }

    /// Opens the volume on an open file or block device of the host: a `std::fs::File`, or any other owner of a descriptor. A lock
    /// that is on it counts as ours. Needs `/proc`.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; [`Error::Open`] with [`io::ErrorKind::PermissionDenied`] for a descriptor that is open for
    /// reading only, where writing is asked for.
    pub fn open_fd(&self, fd: impl Into<OwnedFd>) -> Result<Volume> {
        let fd = fd.into();
        self.open(self.path_of(&fd)?)
    }

    /// As [`OpenOptions::open_raw`], of an open file or block device of the host; as [`OpenOptions::open_fd`].
    ///
    /// # Errors
    /// As there.
    pub fn open_raw_fd(&self, fd: impl Into<OwnedFd>) -> Result<RawFile> {
        let fd = fd.into();
        self.open_raw(self.path_of(&fd)?)
    }

    /// The name of a descriptor, by which the device layer knows that it is one.
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

    /// Opens a volume on a device of the caller's own. [`OpenOptions::offset`] counts; engine, direct I/O and locking are the
    /// device's affair.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_device(&self, device: impl Device + 'static) -> Result<Volume> {
        let own = Own::new(device).map_err(|source| self.failed_device(source))?;
        self.open_block_device(Arc::new(own))
    }

    /// As [`OpenOptions::open_device`], by the traits of the crates below: for their tests and measurements.
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

    /// Ends what a crash cut short, and nothing else: replays the journal, frees files without names, finishes truncations,
    /// and closes the volume. One that needs none of that is not touched.
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
    /// [`Error::Open`]; [`Reason::Invalid`] where it is to be created or emptied and not to be written.
    pub fn open_raw(&self, path: impl AsRef<Path>) -> Result<RawFile> {
        let disk = self.disk_with(path.as_ref(), self.create, self.truncate)?;
        Ok(self.raw(disk))
    }

    /// As [`OpenOptions::open_raw`], on a device of the caller's own. [`OpenOptions::offset`] counts; engine, direct I/O
    /// and locking are the device's affair.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub fn open_raw_device(&self, device: impl Device + 'static) -> Result<RawFile> {
        let own = Own::new(device).map_err(|source| self.failed_device(source))?;
        self.open_raw_block_device(Arc::new(own))
    }

    /// As [`OpenOptions::open_raw_device`], by the traits of the crates below: for their tests and measurements.
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

/// A file of the host whose direct I/O is in larger units than the smallest block of a volume.
fn is_coarse_file(info: &DeviceInfo) -> bool {
    let coarse = info.limits.logical_block_bytes > SMALLEST_BLOCK_BYTES;
    info.direct && coarse && info.kind == DeviceKind::RegularFile
}

/// Memory for metadata beside a page cache of so many bytes: a fourth as much, and neither so little that each look at a
/// directory reads it again, nor more than helps.
fn metadata_bytes(cache_bytes: u64) -> usize {
    const SENSIBLE: RangeInclusive<u64> = 8 << 20..=32 << 20;
    (cache_bytes / 4).clamp(*SENSIBLE.start(), *SENSIBLE.end()) as usize
}
