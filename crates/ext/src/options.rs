//! Options for opening a volume.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use throughline_device::BlockDevice;
use throughline_extfmt::superblock::OnError;
use throughline_fileio::CacheOptions;
use throughline_journal::SharedClock;

/// When a read updates the access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never (`noatime`).
    #[default]
    Never,
    /// If it is not later than the last change, or is a day old (`relatime`).
    Relative,
    /// At every read (`strictatime`).
    Strict,
}

/// Whose limits of space and inodes are enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Those of users (`usrquota`).
    pub users: bool,
    /// Those of groups (`grpquota`).
    pub groups: bool,
    /// Those of projects (`prjquota`).
    pub projects: bool,
}

/// The device of an external journal.
#[derive(Clone)]
pub struct JournalDevice(pub Arc<dyn BlockDevice>);

impl fmt::Debug for JournalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JournalDevice")
            .field(&self.0.info().name)
            .finish()
    }
}

/// Options for opening a volume. The default is read-only.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Open for writing.
    pub write: bool,
    /// Allow writing although the volume has recorded errors. Running `e2fsck` is the better choice.
    pub allow_unclean: bool,
    /// Allow writing although a hash tree of dm-verity is behind the volume: what is written goes elsewhere.
    pub over_hash_tree: bool,
    /// Whether the blocks reserved for root may be used. `None` decides by the caller ([`crate::Caller`]), as
    /// the kernel does.
    pub use_reserved: Option<bool>,
    /// The user besides root who may use them (`resuid`); `None`: the superblock's.
    pub reserved_user: Option<u32>,
    /// The group whose members may use them, if it is not 0 (`resgid`); `None`: the superblock's.
    pub reserved_group: Option<u32>,
    /// Memory for cached metadata blocks, in bytes.
    pub metadata_cache_bytes: usize,
    /// Longest time until a metadata change is committed.
    pub commit_interval: Duration,
    /// Read the volume without its journal (`noload`). For reading only.
    pub no_replay: bool,
    /// The device of an external journal. Ignored by a volume that has its journal inside, or none.
    pub journal: Option<JournalDevice>,
    /// Options of the file data cache.
    pub cache: CacheOptions,
    /// When reads update access times.
    pub access_times: AccessTimes,
    /// Whether this includes directories (`false` is `nodiratime`).
    pub directory_access_times: bool,
    /// Keep changes that affect only timestamps in memory for up to a day (`lazytime`).
    pub lazy_times: bool,
    /// Every change is durable when its call returns (`sync`).
    pub synchronous: bool,
    /// Every change of names is durable when its call returns (`dirsync`).
    pub synchronous_names: bool,
    /// Age at which dirty file data is written back; `None`: 30 s.
    pub dirty_age: Option<Duration>,
    /// Reaction to damage found while the volume is open for writing; `None`: the superblock's setting
    /// (`s_errors`).
    pub on_error: Option<OnError>,
    /// Keep and inherit access control lists (POSIX ACLs). Otherwise they are unsupported, and existing ones
    /// stay as they are.
    pub acl: bool,
    /// A file replaced without a sync, by a rename over it or by truncating and rewriting it, has either its
    /// old or its new contents after a crash.
    pub auto_da_alloc: bool,
    /// Recorded in the superblock as the last mount point; `None` leaves it unchanged.
    pub last_mounted: Option<String>,
    /// Blocks have room on the host once they are claimed, and buffered writes claim theirs at once: a full
    /// host is reported by the write. Needs extents, and an image in a regular file.
    pub allocate: bool,
    /// Enforces the limits of users, groups and projects, on a volume with the feature `quota`. Usage is kept
    /// in any case. No limit applies to root ([`crate::Caller`]).
    pub limits: QuotaLimits,
    /// Source of the timestamps written to the volume.
    pub clock: SharedClock,
    /// Seed for inode generations and for the groups of new directories; `None`: random.
    pub seed: Option<u32>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            write: false,
            allow_unclean: false,
            over_hash_tree: false,
            use_reserved: None,
            reserved_user: None,
            reserved_group: None,
            metadata_cache_bytes: 32 << 20,
            commit_interval: Duration::from_secs(5),
            no_replay: false,
            journal: None,
            cache: CacheOptions::default(),
            access_times: AccessTimes::default(),
            directory_access_times: true,
            lazy_times: false,
            synchronous: false,
            synchronous_names: false,
            dirty_age: None,
            on_error: None,
            acl: true,
            auto_da_alloc: true,
            last_mounted: None,
            allocate: false,
            limits: QuotaLimits::default(),
            clock: SharedClock::SYSTEM,
            seed: None,
        }
    }
}
