//! The options of a mount: what `-o` says, read by one table ([`known`]) into [`MountOptions`].
//!
//! Options come as mount(8), fstab, `fuse2fs` and libfuse know them: a list with commas (`\,` for one inside a value), the later
//! one counts where two disagree. What is unknown is an error that names it and what was probably meant; what is known and
//! without a meaning here is accepted, as long as nothing is promised by it.
//!
//! Which of the kernel's FUSE features a mount uses has its own names, for `with=` and `without=`: [`Choices`].

mod choices;
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

use throughline::{OnError, parse_size};
use tracing::level_filters::LevelFilter;

pub use choices::{CHOICES, Choice, Choices};
pub use list::{escape, names};
pub use size::MAX_COMMIT_SECONDS;
pub use table::{Group, Known, known};

/// How a volume is mounted. As made by [`MountOptions::default`]: read and write, for its owner alone, the kernel checking
/// permissions, without set-user-ID programs and device files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountOptions {
    /// Nothing may change, and not one byte of the image does.
    pub read_only: bool,
    /// Where the volume begins inside the image, in bytes.
    pub offset_bytes: u64,
    /// The image is shown as it lies, without regard to its journal: for reading only.
    pub no_replay: bool,
    /// What to do where damage is found; `None` leaves it to the superblock.
    pub errors: Option<OnError>,
    /// Memory for the page cache; `None` for the default.
    pub cache: Option<CacheSize>,
    /// Who may look in.
    pub access: Access,
    /// The kernel was asked for to check permissions; without it, it does so but with [`MountOptions::fakeroot`].
    pub default_permissions: bool,
    /// Whoever may look in is root to the volume.
    pub fakeroot: bool,
    /// All files look as this user's.
    pub uid: Option<u32>,
    /// All files look as this group's.
    pub gid: Option<u32>,
    /// All files look as if everybody had every right to them but for these bits.
    pub umask: Option<u32>,
    /// Set-user-ID and set-group-ID programs work as such.
    pub suid: bool,
    /// Device files work as such.
    pub dev: bool,
    /// Programs may be run.
    pub exec: bool,
    /// All is durable after this time at the latest; `None` for the default.
    pub commit: Option<Duration>,
    /// A file that is replaced is whole after a crash.
    pub auto_da_alloc: bool,
    /// Every write is durable when it returns.
    pub sync: bool,
    /// Every change of a directory is durable when it returns.
    pub dirsync: bool,
    /// What reading does to access times.
    pub atime: Atime,
    /// Reading a directory counts for its access time.
    pub dir_atime: bool,
    /// Times that change alone wait for company.
    pub lazytime: bool,
    /// POSIX ACLs are shown and honoured.
    pub acl: bool,
    /// Attributes `user.*` are shown and set.
    pub user_xattr: bool,
    /// Blocks that are freed become holes of the image.
    pub discard: bool,
    /// New files take the group of their directory, setgid or not.
    pub group_of_directory: bool,
    /// The volume's own blocks count as space.
    pub minix_df: bool,
    /// The source that the list of mounts shows; `None` for the image's path.
    pub fs_name: Option<String>,
    /// The type that the list of mounts shows behind `fuse.`; `None` for `throughline`.
    pub subtype: Option<String>,
    /// The mount goes when the server does, however that ends: for whoever starts the server to see to.
    pub auto_unmount: bool,
    /// A mount that is there is to be changed: for whoever reads the options to do.
    pub remount: bool,
    /// What reading does to access times was said, be it the default.
    pub(crate) relatime_said: bool,
    /// One of the options that the list of mounts shows of every FUSE mount was given.
    pub(crate) as_listed: bool,
    /// Every request is logged, in the foreground.
    pub debug: bool,
    /// What the server logs; `None` for the default.
    pub log: Option<LevelFilter>,
    /// Where it logs to; `None` for the system's log.
    pub log_file: Option<PathBuf>,
    /// Which of the kernel's FUSE features are used.
    pub choices: Choices,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            offset_bytes: 0,
            no_replay: false,
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
            sync: false,
            dirsync: false,
            atime: Atime::Relative,
            dir_atime: true,
            lazytime: false,
            acl: true,
            user_xattr: true,
            discard: false,
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
            choices: Choices::default(),
        }
    }
}

impl MountOptions {
    /// How the volume is opened for such a mount.
    pub fn volume_options(&self) -> throughline::OpenOptions {
        let mut options = throughline::OpenOptions::new();
        self.apply(&mut options);
        options
    }

    /// The same, with what else is said of how it is opened.
    pub fn apply(&self, options: &mut throughline::OpenOptions) {
        options
            .write(!self.read_only)
            .no_replay(self.no_replay)
            .acl(self.acl)
            .offset(self.offset_bytes)
            .cache_bytes(self.cache.map(CacheSize::bytes))
            .access_times(self.atime.into())
            .directory_access_times(self.dir_atime)
            .lazy_times(self.lazytime)
            .auto_da_alloc(self.auto_da_alloc)
            .synchronous(self.sync)
            .synchronous_names(self.dirsync)
            .on_error(self.errors)
            .discard(self.discard)
            .durable_within(self.commit.unwrap_or(DEFAULT_COMMIT));
    }

    /// The kernel checks permissions: always, but for a mount whose users are all root to it.
    pub fn kernel_checks_permissions(&self) -> bool {
        self.default_permissions || !self.fakeroot
    }
}

/// Who may look into a mount, the kernel's permissions apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The user who mounted it.
    #[default]
    Owner,
    /// That user, and root.
    OwnerAndRoot,
    /// All.
    All,
}

/// What reading a file does to its access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// It is set where it is not later than the last change, or older than a day.
    #[default]
    Relative,
    /// Nothing.
    Never,
    /// It is set.
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
    /// So many bytes, 1 MiB at least.
    Bytes(u64),
    /// So many percent, 1 to 90, of what the process may use.
    Percent(u8),
}

/// As the kernel's ext4 commits.
const DEFAULT_COMMIT: Duration = Duration::from_secs(5);

/// No cache is smaller; often a unit was left out.
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
                Err("that is too little memory: 1M at least (sizes take a unit: 64M, 1G)".into())
            }
            bytes => Ok(CacheSize::Bytes(bytes)),
        }
    }

    /// The same in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            CacheSize::Bytes(bytes) => bytes,
            CacheSize::Percent(percent) => {
                let share = throughline::memory::allowed_bytes() / 100 * u64::from(percent);
                share.max(MIN_CACHE_BYTES)
            }
        }
    }
}

/// An option that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionError {
    /// There is none of that name.
    Unknown {
        /// As it was written, without a value.
        name: String,
        /// What was probably meant.
        nearest: Option<&'static str>,
    },
    /// There is one, and what stands behind its `=` is wrong, or missing, or too much.
    Value {
        /// The option, as it was written.
        option: String,
        /// What would be right.
        reason: String,
    },
    /// Two that exclude each other.
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
