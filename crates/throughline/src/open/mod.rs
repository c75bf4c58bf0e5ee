//! [`OpenOptions`]: the choices for opening an image, a plain file or a device.

mod opening;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use throughline_block::Listener;
use throughline_device::EngineChoice;
use throughline_ext::{AccessTimes, Clock, OnError, SharedClock};
use throughline_fileio::DirtyLimits;

/// The default of the kernel's ext4.
const DEFAULT_COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// Options for opening a [`Volume`](crate::Volume) or a [`RawFile`](crate::RawFile).
///
/// The defaults ([`OpenOptions::new`]): read-only, bypassing the host's page cache, from byte 0 of the
/// device, with an engine and I/O size that fit the machine.
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
    listener: Option<Attached>,
    clock: SharedClock,
    seed: Option<u32>,
}

/// A listener that is attached from the start.
#[derive(Clone)]
struct Attached(Arc<dyn Listener>);

impl fmt::Debug for Attached {
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
    /// The default options, as described for the type.
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
    /// new access time stays in memory. It is written with the next other change of the inode, by a sync,
    /// when the volume is closed, or when the access time of another inode is set more than half a minute
    /// later.
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

    /// Keeps timestamps in memory if nothing else of the inode changes, also those of writes (`lazytime`).
    /// They are written with the next other change of the inode, by a sync, when the volume is closed, or
    /// when timestamps of another inode change more than a day later.
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

    /// How long file data may stay dirty before it is written back by age (30 s).
    /// [`Volume::set_dirty_age`](crate::Volume::set_dirty_age) changes it later.
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
    /// discard requests. Off by default; [`Volume::trim`](crate::Volume::trim) discards all free space once.
    pub fn discard(&mut self, discard: bool) -> &mut Self {
        self.discard = discard;
        self
    }

    /// Ignores the journal of a volume that is opened read-only (`noload`). The volume may then be
    /// inconsistent.
    pub fn no_replay(&mut self, no_replay: bool) -> &mut Self {
        self.no_replay = no_replay;
        self
    }

    /// Opens the volume read-only and without a lock, although another process may be writing it. Each read
    /// returns what is on the device at that moment. So a superblock and its counts are consistent, but
    /// structures that span several blocks may not be. Use it with [`OpenOptions::no_replay`].
    pub fn beside_writer(&mut self, beside: bool) -> &mut Self {
        self.beside_writer = beside;
        self
    }

    /// For the server of a mount of a block device: the kernel already holds the device for that mount, so it
    /// is not claimed again, and not refused as mounted.
    pub fn held_by_mount(&mut self, held: bool) -> &mut Self {
        self.held_by_mount = held;
        self
    }

    /// Whether access control lists (POSIX ACLs) are kept, updated with the permissions, and inherited (the
    /// default; `false` is `noacl`). Without this, existing lists stay as they are, and requests for one fail
    /// with [`Error::Unsupported`](crate::Error::Unsupported).
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

    /// Whether files use this library's page cache (the default). Applies to the handle of
    /// [`OpenOptions::open_raw`], and to files of a volume opened without
    /// [`FileOptions`](crate::FileOptions); `reopen` makes a handle of the other kind.
    /// [`OpenOptions::direct`] controls the use of the *host's* page cache.
    pub fn buffered(&mut self, buffered: bool) -> &mut Self {
        self.buffered = buffered;
        self
    }

    /// Traces every I/O of the device to `listener`, from opening to closing.
    /// [`Volume::subscribe`](crate::Volume::subscribe) attaches a listener later, for a limited time.
    pub fn listener(&mut self, listener: Option<Arc<dyn Listener>>) -> &mut Self {
        self.listener = listener.map(Attached);
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
}
