//! Errors of the file system, by cause.

use std::sync::Arc;

use throughline_extfmt::{FsBlock, InodeNumber};
use throughline_journal::Abort;

/// The result of a call on the file system.
pub type Result<T> = core::result::Result<T, Error>;

/// An error of the file system. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is invalid or cannot be satisfied.
    #[error(transparent)]
    Caller(#[from] Reason),
    /// The device failed.
    #[error(transparent)]
    Device(throughline_block::Error),
    /// The system refused something that is needed, such as a thread.
    #[error("{what}: {source}")]
    System {
        /// What was refused.
        what: &'static str,
        /// The system's error.
        source: Arc<std::io::Error>,
    },
    /// The volume is sound, but this library does not support the operation on it.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The volume is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// An earlier failure stopped all changes of this volume; the text says which one. The call whose own
    /// commit failed gets [`Error::Device`] instead.
    #[error("the volume refuses further changes: {0}")]
    Stopped(Arc<Abort>),
    /// The volume was taken down ([`crate::Fs::take_down`]): nothing can be read or written any more.
    #[error("the volume was taken down")]
    Down,
}

/// What is wrong with a caller's request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// No such file or directory.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already.
    #[error("file exists")]
    Exists,
    /// A directory is required.
    #[error("not a directory")]
    NotDir,
    /// A directory is not allowed here.
    #[error("is a directory")]
    IsDir,
    /// The directory still has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// No free blocks or inodes are left for this caller.
    #[error("no space left on device")]
    NoSpace,
    /// The owner's limit of space or inodes is reached.
    #[error("disk quota exceeded")]
    Quota,
    /// The file would exceed the maximum size of its format.
    #[error("file too large")]
    TooLarge,
    /// A name of more than 255 bytes, or a path that is too long.
    #[error("file name too long")]
    NameTooLong,
    /// The volume is read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// The file's flags or mode forbid it.
    #[error("operation not permitted")]
    Permission,
    /// An argument is invalid.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The inode has as many links as the format can count.
    #[error("too many links")]
    TooManyLinks,
    /// Too many symbolic links in the path.
    #[error("too many levels of symbolic links")]
    Loop,
    /// The file is encrypted, and this library does not have the key.
    #[error("required key not available")]
    NoKey,
    /// In use by another host or process, or an inode that cannot be changed like this (the root); the text
    /// says which.
    #[error("busy: {0}")]
    Busy(String),
    /// The kernel uses the image: it is mounted, attached to a loop device, part of another device, or swap.
    #[error("{who}")]
    InUse {
        /// The image, and what uses it.
        who: String,
        /// How to release it.
        next: String,
    },
    /// Source and target are on different volumes or in different projects.
    #[error("cross-device link")]
    CrossDevice,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The name of an extended attribute is empty or longer than 255 bytes.
    #[error("the name of an attribute has 1 to 255 bytes")]
    AttributeName,
    /// The value of an extended attribute is longer than 65,536 bytes.
    #[error("the value of an attribute is too long")]
    ValueTooLong,
    /// The caller lacks the access rights.
    #[error("permission denied")]
    Denied,
    /// The file was not opened for reading, or not for writing; the text says which.
    #[error("the file was not opened for {0}")]
    NotOpenedFor(&'static str),
    /// The file ends before the end of a range that must be read in full.
    #[error("the file ends before the range does")]
    PastEnd,
    /// What was opened holds no ext2, ext3 or ext4 volume.
    #[error("no ext file system: {0}")]
    NotExt(NotExt),
}

/// How one sees that there is no ext2, ext3 or ext4 volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotExt {
    /// There is no room for a superblock.
    #[error("the device has only {bytes} bytes")]
    TooShort {
        /// The length of the device.
        bytes: u64,
    },
    /// There is no superblock.
    #[error("superblock magic is {found:#06x}, not 0xef53")]
    Magic {
        /// What is there instead.
        found: u16,
    },
}

/// Damage on the volume: where, and what exactly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "corrupt{}{}: {what}",
    place("inode", inode.map(|i| u64::from(i.0))),
    place("block", block.map(|b| b.0))
)]
pub struct Corrupt {
    /// The inode it belongs to, if known.
    pub inode: Option<InodeNumber>,
    /// The block it was read from, if known.
    pub block: Option<FsBlock>,
    /// What is wrong.
    pub what: String,
}

impl Corrupt {
    /// Where it is, as far as known.
    pub fn place(&self) -> (Option<InodeNumber>, Option<FsBlock>) {
        (self.inode, self.block)
    }
}

fn place(name: &str, number: Option<u64>) -> String {
    number.map(|n| format!(", {name} {n}")).unwrap_or_default()
}

impl Error {
    /// Whether the file system that holds the image is full ([`throughline_block::Error::is_full`]).
    pub fn is_host_full(&self) -> bool {
        matches!(self, Self::Device(error) if error.is_full())
    }

    /// Whether a transaction that failed with this error has changed nothing: a refusal, or no room on the
    /// host to begin it.
    pub(crate) fn changed_nothing(&self) -> bool {
        matches!(self, Self::Caller(_)) || self.is_host_full()
    }

    /// Damage that belongs to no inode in particular.
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(Corrupt {
            inode: None,
            block: None,
            what: what.into(),
        })
    }

    /// Adds the inode that a damage belongs to, if it is not set yet. Other errors are unchanged.
    #[must_use]
    pub(crate) fn in_inode(self, ino: InodeNumber) -> Self {
        match self {
            Self::Corrupt(c) => Self::Corrupt(Corrupt {
                inode: c.inode.or(Some(ino)),
                ..c
            }),
            other => other,
        }
    }

    /// Adds the block that a damage was read from, if it is not set yet. Other errors are unchanged.
    #[must_use]
    pub(crate) fn in_block(self, block: FsBlock) -> Self {
        match self {
            Self::Corrupt(c) => Self::Corrupt(Corrupt {
                block: c.block.or(Some(block)),
                ..c
            }),
            other => other,
        }
    }
}

impl From<throughline_block::Error> for Error {
    fn from(error: throughline_block::Error) -> Self {
        match error {
            throughline_block::Error::System { what, source } => Self::System { what, source },
            other => Self::Device(other),
        }
    }
}

impl From<throughline_extfmt::Corrupt> for Error {
    fn from(error: throughline_extfmt::Corrupt) -> Self {
        Self::corrupt(error.to_string())
    }
}

/// A journal that was stopped returns what stopped it: the call that gets this error had a commit in
/// progress. Calls that begin later are refused with [`Error::Stopped`] before they reach the journal
/// (`Base::check_going_on`).
impl From<throughline_journal::Error> for Error {
    fn from(error: throughline_journal::Error) -> Self {
        use throughline_journal::Error as E;
        match error {
            E::Caller(what) => Reason::Invalid(what).into(),
            E::ReadOnly => Reason::ReadOnly.into(),
            E::Aborted(why) => match &*why {
                Abort::Write(error) => Self::Device(error.clone()),
                _ => Self::Stopped(why),
            },
            E::Device(e) => e.into(),
            E::System { what, source } => Self::System { what, source },
            E::Unsupported(what) => Self::Unsupported(what),
            E::Corrupt { block, what } => Self::Corrupt(Corrupt {
                inode: None,
                block,
                what: what.to_string(),
            }),
            other => Self::corrupt(other.to_string()),
        }
    }
}

/// Converts to the data path's error without loss: [`Error::from`] restores it.
impl From<Error> for throughline_fileio::Error {
    fn from(error: Error) -> Self {
        use throughline_fileio::Reason as R;
        match error {
            Error::Device(e) => Self::Device(e),
            Error::Caller(Reason::NoSpace) => Self::Caller(R::NoSpace),
            Error::Caller(Reason::Quota) => Self::Caller(R::Quota),
            Error::Caller(Reason::TooLarge) => Self::Caller(R::TooLarge),
            Error::Caller(Reason::ReadOnly) => Self::Caller(R::ReadOnly),
            Error::Caller(Reason::Invalid(what)) => Self::Caller(R::Invalid(what)),
            Error::Unsupported(what) => Self::Unsupported(what),
            other => Self::mapper(other),
        }
    }
}

impl From<throughline_fileio::Error> for Error {
    fn from(error: throughline_fileio::Error) -> Self {
        use throughline_fileio::{Error as E, Reason as R};
        if let Some(own) = error.mapper_ref::<Self>() {
            return own.clone();
        }
        match error {
            E::Caller(R::NoSpace) => Reason::NoSpace.into(),
            E::Caller(R::Quota) => Reason::Quota.into(),
            E::Caller(R::TooLarge) => Reason::TooLarge.into(),
            E::Caller(R::ReadOnly) => Reason::ReadOnly.into(),
            E::Caller(R::Invalid(what)) => Reason::Invalid(what).into(),
            E::Caller(_) => Reason::Invalid("file I/O request").into(),
            E::Device(e) => e.into(),
            E::Unsupported(what) => Self::Unsupported(what),
            E::Corrupt(what) => Self::corrupt(what),
            other => Self::corrupt(other.to_string()),
        }
    }
}
