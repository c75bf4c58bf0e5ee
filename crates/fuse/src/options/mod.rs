//! Mount options: `-o` parsed into [`MountOptions`] by one table ([`known`]).
//!
//! The options are those of mount(8), fstab, `fuse2fs` and libfuse: a list with commas (`\,` inside a value),
//! where the last of conflicting options wins. An unknown option is an error, with a suggestion. Options that
//! do not apply here are accepted and ignored, as long as this breaks no promise.
//!
//! The FUSE features that a mount uses have names for `with=` and `without=`: [`Choices`].

mod choices;
mod group;
mod ignored;
mod list;
mod settings;
mod size;
mod table;
#[cfg(test)]
mod tests;
mod values;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use throughline::internal::parse_size;
use throughline::{Backing, Format, OnError, QuotaLimits};
use tracing::level_filters::LevelFilter;

pub use choices::{CHOICES, Choice, Choices};
pub use group::Group;
pub use list::{escape, names};
pub use size::MAX_COMMIT_SECONDS;
pub use table::{Known, known};

/// How a volume is mounted. The [default](MountOptions::default) is read-write, accessible only to the
/// mounting user, permissions checked by the kernel, without set-user-ID programs and device files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountOptions {
    /// Read-only: no byte of the image changes.
    pub read_only: bool,
    /// The start of the volume in the image, in bytes.
    pub offset_bytes: u64,
    /// The device or file of an external journal.
    pub journal: Option<PathBuf>,
    /// The partition that holds the volume, by number, label or UUID.
    pub partition: Option<String>,
    /// The format of the image, if it was named.
    pub format: Option<Format>,
    /// The files and directories that may be, or hold, backing files of the image.
    pub backing: Vec<PathBuf>,
    /// The qcow2 image that changes are written to, instead of the image.
    pub overlay: Option<PathBuf>,
    /// Show the image without replaying its journal; only for read-only mounts.
    pub no_replay: bool,
    /// Grow the volume to the size of its device or file before it is mounted.
    pub resize: bool,
    /// The behaviour on damage; `None`: from the superblock.
    pub errors: Option<OnError>,
    /// Memory for the page cache; `None` for the default ([`MountOptions::cache_bytes`]).
    pub cache: Option<CacheSize>,
    /// Which users have access.
    pub access: Access,
    /// Permission checks by the kernel were requested. Without this, the kernel checks them except with
    /// [`MountOptions::fakeroot`].
    pub default_permissions: bool,
    /// Users with access have root's rights on the volume.
    pub fakeroot: bool,
    /// Show all files as owned by this user ID.
    pub uid: Option<u32>,
    /// Show all files as owned by this group ID.
    pub gid: Option<u32>,
    /// Show all files with permissions 0777 less these bits.
    pub umask: Option<u32>,
    /// Honour set-user-ID and set-group-ID programs.
    pub suid: bool,
    /// Honour device files.
    pub dev: bool,
    /// Allow programs to be run.
    pub exec: bool,
    /// Changes are durable after this time at the latest; `None` for the default.
    pub commit: Option<Duration>,
    /// After a crash, a replaced file has its complete old or new content.
    pub auto_da_alloc: bool,
    /// Every write is durable when it returns.
    pub sync: bool,
    /// Every change of a directory is durable when it returns.
    pub dirsync: bool,
    /// When reading a file sets its access time.
    pub atime: Atime,
    /// Reading a directory sets its access time like a file's.
    pub dir_atime: bool,
    /// A change that affects only times is written with another change of the file.
    pub lazytime: bool,
    /// POSIX ACLs are shown and honoured.
    pub acl: bool,
    /// `user.*` attributes are shown and can be set.
    pub user_xattr: bool,
    /// Freed blocks are discarded: they become holes in the image.
    pub discard: bool,
    /// Blocks get room on the host when they are taken, at the write at the latest.
    pub allocate: bool,
    /// The user besides root who may use the blocks reserved for root; `None`: the superblock's.
    pub reserved_user: Option<u32>,
    /// The group whose members may; `None`: the superblock's.
    pub reserved_group: Option<u32>,
    /// Whose limits of space and inodes are enforced.
    pub limits: QuotaLimits,
    /// Files are opened without a request, as on a read-only mount.
    pub small_files: bool,
    /// New files inherit the group of their directory, setgid or not.
    pub group_of_directory: bool,
    /// The size of the volume includes its own metadata.
    pub minix_df: bool,
    /// The source that the list of mounts shows; `None` for the image's path.
    pub fs_name: Option<String>,
    /// The type that the list of mounts shows after `fuse.`; `None` for `throughline`.
    pub subtype: Option<String>,
    /// Unmount when the server ends, for whatever reason. The caller that starts the server implements it.
    pub auto_unmount: bool,
    /// Change an existing mount. The caller implements it.
    pub remount: bool,
    /// `relatime` was given explicitly.
    pub(crate) relatime_said: bool,
    /// An option was given that the list of mounts shows for every FUSE mount.
    pub(crate) as_listed: bool,
    /// Log every request, in the foreground.
    pub debug: bool,
    /// The log level; `None` for the default.
    pub log: Option<LevelFilter>,
    /// The log file; `None` for syslog.
    pub log_file: Option<PathBuf>,
    /// The image is a stranger's: see [`MountOptions::check`].
    pub untrusted: bool,
    /// The server drops the rights that it does not need. The caller that starts the server implements it.
    pub sandbox: bool,
    /// The FUSE features to use.
    pub choices: Choices,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            offset_bytes: 0,
            journal: None,
            partition: None,
            format: None,
            backing: Vec::new(),
            overlay: None,
            no_replay: false,
            resize: false,
            errors: None,
            cache: None,
            access: Access::Owner,
            default_permissions: false,
            fakeroot: false,
            uid: None,
            gid: None,
            umask: None,
            suid: false,
            dev: false,
            exec: true,
            commit: None,
            auto_da_alloc: true,
            allocate: false,
            reserved_user: None,
            reserved_group: None,
            limits: QuotaLimits::default(),
            sync: false,
            dirsync: false,
            atime: Atime::Relative,
            dir_atime: true,
            lazytime: false,
            acl: true,
            user_xattr: true,
            discard: false,
            small_files: false,
            group_of_directory: false,
            minix_df: false,
            fs_name: None,
            subtype: None,
            auto_unmount: false,
            remount: false,
            relatime_said: false,
            as_listed: false,
            debug: false,
            log: None,
            log_file: None,
            untrusted: false,
            sandbox: true,
            choices: Choices::default(),
        }
    }
}

impl MountOptions {
    /// The options to open the volume with.
    pub fn volume_options(&self) -> throughline::OpenOptions {
        let mut options = throughline::OpenOptions::new();
        self.apply(&mut options);
        options
    }

    /// Applies the same options to `options`.
    pub fn apply(&self, options: &mut throughline::OpenOptions) {
        let mut volume = throughline::VolumeOptions::new();
        volume
            .acl(self.acl)
            .access_times(self.atime.into())
            .directory_access_times(self.dir_atime)
            .lazy_times(self.lazytime)
            .auto_da_alloc(self.auto_da_alloc)
            .limits(self.limits)
            .synchronous(self.sync)
            .synchronous_names(self.dirsync)
            .on_error(self.errors)
            .allocate(self.allocate)
            .reserved_user(self.reserved_user)
            .reserved_group(self.reserved_group)
            .discard(self.discard)
            .journal(self.journal.clone())
            .durable_within(self.commit.unwrap_or(DEFAULT_COMMIT));
        let mut image = throughline::ImageOptions::new();
        image
            .format(self.format)
            .backing(Backing::from_iter(&self.backing))
            .overlay(self.overlay.clone());
        options
            .write(!self.read_only)
            .no_replay(self.no_replay)
            .offset(self.offset_bytes)
            .partition(self.partition.clone())
            .image(&image)
            .cache_bytes(Some(self.cache_bytes()))
            .volume(&volume);
    }

    /// Memory for the page cache, in bytes: as set, else a quarter of the memory the process may use, but at
    /// most [`MAX_USUAL_CACHE_BYTES`], or [`MAX_UNTRUSTED_CACHE_BYTES`] for an untrusted image.
    pub fn cache_bytes(&self) -> u64 {
        let most = match self.untrusted {
            true => MAX_UNTRUSTED_CACHE_BYTES,
            false => MAX_USUAL_CACHE_BYTES,
        };
        let usual = throughline::internal::default_budget_bytes().min(most);
        self.cache.map_or(usual, CacheSize::bytes)
    }

    /// Whether the kernel checks permissions: always, except with `fakeroot` and without
    /// `default_permissions`.
    pub fn kernel_checks_permissions(&self) -> bool {
        self.default_permissions || !self.fakeroot
    }
}

/// The users with access to a mount, apart from permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The user who mounted it.
    #[default]
    Owner,
    /// That user and root.
    OwnerAndRoot,
    /// All users.
    All,
}

/// When reading a file sets its access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// If it is not later than the last change, or older than a day.
    #[default]
    Relative,
    /// Never.
    Never,
    /// Always.
    Always,
}

impl From<Atime> for throughline::AccessTimes {
    fn from(atime: Atime) -> throughline::AccessTimes {
        match atime {
            Atime::Relative => throughline::AccessTimes::Relative,
            Atime::Never => throughline::AccessTimes::Never,
            Atime::Always => throughline::AccessTimes::Strict,
        }
    }
}

/// Memory for the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSize {
    /// In bytes, at least 1 MiB.
    Bytes(u64),
    /// In percent, 1 to 90, of the memory that the process may use.
    Percent(u8),
}

/// The maximum default memory for the page cache of a mount, in bytes. It is small because images come from
/// anywhere, and the owner of an image file says nothing about its content. More memory helps little: the
/// kernel also caches what programs read, and a stream of writes runs at the speed of the device.
pub const MAX_USUAL_CACHE_BYTES: u64 = 256 << 20;

/// The same for an untrusted image, in bytes.
pub const MAX_UNTRUSTED_CACHE_BYTES: u64 = 64 << 20;

/// The commit interval of the kernel's ext4.
const DEFAULT_COMMIT: Duration = Duration::from_secs(5);

/// The smallest cache. A smaller value usually lacks a unit.
const MIN_CACHE_BYTES: u64 = 1 << 20;

impl CacheSize {
    fn parse(text: &str) -> Result<CacheSize, String> {
        if let Some(percent) = text.strip_suffix('%') {
            return match percent.parse() {
                Ok(percent @ 1..=90) => Ok(CacheSize::Percent(percent)),
                _ => Err("write a share between 1% and 90%".into()),
            };
        }
        match parse_size(text)? {
            bytes if bytes < MIN_CACHE_BYTES => {
                Err("too little memory: at least 1M (sizes take a unit: 64M, 1G)".into())
            }
            bytes => Ok(CacheSize::Bytes(bytes)),
        }
    }

    /// The size in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            CacheSize::Bytes(bytes) => bytes,
            CacheSize::Percent(percent) => {
                let share = throughline::internal::allowed_bytes() / 100 * u64::from(percent);
                share.max(MIN_CACHE_BYTES)
            }
        }
    }
}

/// An invalid option.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionError {
    /// The name is unknown.
    Unknown {
        /// The name as written, without a value.
        name: String,
        /// The option that was probably meant.
        nearest: Option<&'static str>,
    },
    /// The value is wrong, missing, or not allowed; or the option is refused.
    Value {
        /// The option as written.
        option: String,
        /// What is wrong, or a valid form.
        reason: String,
    },
    /// Options that exclude each other.
    Conflict(&'static str),
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionError::Unknown { name, nearest } => {
                write!(f, "unknown mount option '{}'", name.escape_debug())?;
                match nearest {
                    Some(nearest) => write!(f, ": did you mean '{nearest}'?"),
                    None => Ok(()),
                }
            }
            OptionError::Value { option, reason } => {
                write!(f, "mount option '{}': {reason}", option.escape_debug())
            }
            OptionError::Conflict(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for OptionError {}
