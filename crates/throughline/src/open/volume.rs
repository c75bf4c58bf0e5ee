//! [`VolumeOptions`]: how an open volume behaves.

use std::path::PathBuf;
use std::time::Duration;

use throughline_ext::{AccessTimes, Clock, OnError, QuotaLimits, SharedClock};

/// How a volume behaves while it is open: what `mount -o` sets for ext4, and the sources of times and random
/// numbers. [`OpenOptions::volume`](crate::OpenOptions::volume) takes them.
///
/// The defaults ([`VolumeOptions::new`]) are those of the kernel's ext4, except that access times are not
/// updated.
///
/// ```no_run
/// use std::time::Duration;
/// use throughline::{OpenOptions, VolumeOptions};
///
/// # fn main() -> throughline::Result<()> {
/// let volume = OpenOptions::new()
///     .write(true)
///     .volume(VolumeOptions::new().durable_within(Duration::from_secs(2)))
///     .open("disk.img")?;
/// # volume.close()
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct VolumeOptions {
    pub(super) fs: throughline_ext::OpenOptions,
    pub(super) discard: bool,
    /// Of an external journal.
    pub(super) journal: Option<PathBuf>,
}

impl VolumeOptions {
    /// The default options, as described for the type.
    pub fn new() -> VolumeOptions {
        VolumeOptions::default()
    }

    /// The longest time until a change of names, sizes or attributes is durable without a sync (5 s, as in
    /// the kernel). Without a journal, the time until it is in place.
    pub fn commit_interval(&mut self, interval: Duration) -> &mut Self {
        self.fs.commit_interval = interval;
        self
    }

    /// The device or file of an external journal (`journal_path=` of a mount). It is locked as the volume is.
    /// Its UUID must be the one that the volume's superblock names, and it must list the volume among its
    /// users. A volume with an external journal that was closed can be read without it. Ignored by a volume
    /// that has its journal inside, or none.
    pub fn journal(&mut self, path: Option<PathBuf>) -> &mut Self {
        self.journal = path;
        self
    }

    /// When reading a file, a directory or a symbolic link updates its access time. The default is never. A
    /// new access time stays in memory. It is written with the next other change of the inode, by a sync,
    /// when the volume is closed, or when the access time of another inode is set more than half a minute
    /// later.
    pub fn access_times(&mut self, when: AccessTimes) -> &mut Self {
        self.fs.access_times = when;
        self
    }

    /// Whether reading directories updates their access times too, if [`VolumeOptions::access_times`] enables
    /// them (the default; `false` is `nodiratime`).
    pub fn directory_access_times(&mut self, set: bool) -> &mut Self {
        self.fs.directory_access_times = set;
        self
    }

    /// Keeps timestamps in memory if nothing else of the inode changes, also those of writes (`lazytime`).
    /// They are written with the next other change of the inode, by a sync, when the volume is closed, or
    /// when timestamps of another inode change more than a day later.
    pub fn lazy_times(&mut self, lazy: bool) -> &mut Self {
        self.fs.lazy_times = lazy;
        self
    }

    /// Every change is durable when its call returns (`sync`). For a write this covers data and size;
    /// timestamps follow later.
    pub fn synchronous(&mut self, synchronous: bool) -> &mut Self {
        self.fs.synchronous = synchronous;
        self
    }

    /// Every change of names is durable when its call returns (`dirsync`).
    pub fn synchronous_names(&mut self, synchronous: bool) -> &mut Self {
        self.fs.synchronous_names = synchronous;
        self
    }

    /// How long file data may stay dirty before it is written back by age (30 s).
    /// [`Tuning::dirty_age`](crate::Tuning::dirty_age) changes it later.
    pub fn dirty_age(&mut self, age: Duration) -> &mut Self {
        self.fs.dirty_age = Some(age);
        self
    }

    /// Everything is durable after this time at the latest, if the device keeps up (`commit=` of a mount):
    /// data is written back after a quarter of it ([`VolumeOptions::dirty_age`]), and a change is committed
    /// after half of it ([`VolumeOptions::commit_interval`]). The rest is for the polling interval and for
    /// the writing itself.
    pub fn durable_within(&mut self, time: Duration) -> &mut Self {
        self.dirty_age(time / 4).commit_interval(time / 2)
    }

    /// The reaction to damage found while the volume is open for writing (`errors=` of a mount). `None`, the
    /// default, takes the superblock's setting. The error is recorded in any case. [`OnError::Panic`] is
    /// treated as [`OnError::RemountRo`].
    pub fn on_error(&mut self, on_error: Option<OnError>) -> &mut Self {
        self.fs.on_error = on_error;
        self
    }

    /// Discards blocks that commits have freed (`discard` of a mount): an image file gets holes, a disk gets
    /// discard requests. Off by default; [`Volume::trim`](crate::Volume::trim) discards all free space once.
    pub fn discard(&mut self, discard: bool) -> &mut Self {
        self.discard = discard;
        self
    }

    /// Whether access control lists (POSIX ACLs) are kept, updated with the permissions, and inherited (the
    /// default; `false` is `noacl`). Without this, existing lists stay as they are, and requests for one fail
    /// with [`Error::Unsupported`](crate::Error::Unsupported).
    pub fn acl(&mut self, acl: bool) -> &mut Self {
        self.fs.acl = acl;
        self
    }

    /// Whether a file replaced without a sync has either its old or its new contents after a crash (the
    /// default; `false` is `noauto_da_alloc`). It applies to a file that is renamed over, or truncated and
    /// rewritten. A rename over a file therefore waits until the new contents are on the device; without a
    /// journal, until they are durable.
    pub fn auto_da_alloc(&mut self, whole: bool) -> &mut Self {
        self.fs.auto_da_alloc = whole;
        self
    }

    /// Enforces the limits of users, groups or projects, on a volume with the feature `quota`. By default, it
    /// keeps their usage and enforces nothing. They do not apply to root
    /// ([`Caller`](crate::Caller)).
    ///
    /// Opening for writing fails with [`Error::Unsupported`](crate::Error::Unsupported) if the volume does
    /// not keep such usage.
    pub fn limits(&mut self, limits: QuotaLimits) -> &mut Self {
        self.fs.limits = limits;
        self
    }

    /// Whether blocks get room on the host when they are taken, at the write at the latest: a sparse image on
    /// a full disk then refuses the write, and not a later sync. Opening fails with
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the host cannot promise room. Not for files
    /// without extents (ext2, ext3) or with data in the inode, nor for one that is rewritten after its
    /// truncation; concurrent appends may be reported by the sync.
    pub fn allocate(&mut self, allocate: bool) -> &mut Self {
        self.fs.allocate = allocate;
        self
    }

    /// The user besides root who may use the blocks reserved for root (`resuid`); by default the
    /// superblock's. Who calls, [`Caller`](crate::Caller) says.
    pub fn reserved_user(&mut self, uid: Option<u32>) -> &mut Self {
        self.fs.reserved_user = uid;
        self
    }

    /// The group whose members may use them, unless it is 0 (`resgid`); by default the superblock's.
    pub fn reserved_group(&mut self, gid: Option<u32>) -> &mut Self {
        self.fs.reserved_group = gid;
        self
    }

    /// Source of the timestamps that are written to the volume, in place of the system clock. Any `Fn() ->
    /// SystemTime` works.
    pub fn clock(&mut self, clock: impl Clock + 'static) -> &mut Self {
        self.fs.clock = SharedClock::new(clock);
        self
    }

    /// Seeds the volume's random choices: the generations of new inodes, and the placement of new directories
    /// in the root.
    ///
    /// With this and your own [`VolumeOptions::clock`], **the same calls on the same image give the same
    /// bytes**, if one thread makes them, files are not
    /// [`buffered`](crate::OpenOptions::buffered) (the timing of background write-back varies), and nothing
    /// is committed by age ([`VolumeOptions::commit_interval`]).
    pub fn seed(&mut self, seed: u32) -> &mut Self {
        self.fs.seed = Some(seed);
        self
    }
}
