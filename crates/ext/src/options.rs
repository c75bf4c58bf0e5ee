//! How a volume is opened.

use std::time::Duration;

use throughline_extfmt::superblock::OnError;
use throughline_fileio::CacheOptions;
use throughline_journal::SharedClock;

/// When reading sets the access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never (`noatime`).
    #[default]
    Never,
    /// Where it is not later than the last change, or a day old (`relatime`).
    Relative,
    /// At every read (`strictatime`).
    Strict,
}

/// How a volume is opened. The default reads only.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Open for writing.
    pub write: bool,
    /// Write although the volume has recorded errors. `e2fsck` should run instead.
    pub allow_unclean: bool,
    /// May this caller use the blocks reserved for root? `None`: as the kernel decides, by the effective user.
    pub use_reserved: Option<bool>,
    /// Memory for cached metadata blocks, in bytes.
    pub metadata_cache_bytes: usize,
    /// A change of metadata is committed after this time at the latest.
    pub commit_interval: Duration,
    /// Read the volume as it lies, without regard to what its journal holds (`noload`). For reading only.
    pub no_replay: bool,
    /// How file data is cached.
    pub cache: CacheOptions,
    /// When reading sets access times.
    pub access_times: AccessTimes,
    /// Reading a directory does so too (without it, `nodiratime`).
    pub directory_access_times: bool,
    /// Times that change alone are kept in memory for up to a day (`lazytime`).
    pub lazy_times: bool,
    /// Every change is durable when its call returns (`sync`).
    pub synchronous: bool,
    /// Every change of names is (`dirsync`).
    pub synchronous_names: bool,
    /// How long file data may be dirty before it is written without another reason; `None`: 30 s.
    pub dirty_age: Option<Duration>,
    /// What follows when damage is found while the volume is open for writing; `None`: what its superblock says (`s_errors`).
    pub on_error: Option<OnError>,
    /// Lists of access rights (POSIX ACLs) are kept, and inherited. Without, they are not supported, and those that are there
    /// stay as they are.
    pub acl: bool,
    /// A file that is replaced is whole after a crash, old or new, without a sync: by a rename over it, or emptied and written
    /// anew.
    pub auto_da_alloc: bool,
    /// What is noted in the superblock as the place where the volume was last mounted; `None` leaves it as it is.
    pub last_mounted: Option<String>,
    /// What time is written to the volume.
    pub clock: SharedClock,
    /// Where the numbers begin that tell inodes from earlier ones, and the groups of new directories; `None`: at random.
    pub seed: Option<u32>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            write: false,
            allow_unclean: false,
            use_reserved: None,
            metadata_cache_bytes: 32 << 20,
            commit_interval: Duration::from_secs(5),
            no_replay: false,
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
            clock: SharedClock::SYSTEM,
            seed: None,
        }
    }
}
