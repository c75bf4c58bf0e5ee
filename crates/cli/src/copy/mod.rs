//! Copying between images, the host and streams.
//!
//! Both sides have the same interface: a [`side::Folder`] holds names, a [`side::Content`] holds bytes;
//! [`host_folder`], [`host`] and [`image`] implement them. [`arguments`] splits the command line into single
//! copies. [`tree`] and [`descend`] walk one source and create its files at the target. [`pump`] copies the
//! bytes of one file, [`workers`] those of many small files at a time. [`extended`] copies extended
//! attributes and ACLs.
//!
//! Invariants:
//! - Only the walking thread creates names, in the order of the walk. Other threads copy bytes and set final
//!   attributes. So the first name of a hard link exists before the others, and a directory's times are set
//!   after its last entry.
//! - Writing never follows a symbolic link below the target named on the command line, so neither a hostile
//!   image nor a user who changes the target meanwhile can make a copy leave it. What is copied of a file is
//!   that of one inode, and attributes are set on the inode that was created.
//! - Memory is bounded: a few large buffers, one small buffer per worker, and a bounded queue between them.
//!   In addition, the inode numbers of directories and of files with more names to come are kept; on the
//!   host, also the names of all directories, and those in the directories that are being visited.
//! - The number of open files is bounded: those of queued jobs, and a few directories of the host.

use throughline_forms::mode::ModeChange;
use throughline_forms::owner::Owner;

mod arguments;
mod descend;
mod extended;
mod host;
mod host_folder;
mod host_meta;
mod image;
mod latency;
mod preserve;
mod pump;
mod side;
mod stdout;
mod tree;
mod workers;

pub(crate) use arguments::{Totals, copy};
pub(crate) use extended::no_room;
pub(crate) use image::{ImageContent, LongCalls};
pub(crate) use preserve::{Preserve, Xattrs};
pub(crate) use stdout::ToStdout;

/// What to copy and how.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Copy directories with their contents.
    pub(crate) recursive: bool,
    /// What to preserve of the source.
    pub(crate) preserve: Preserve,
    /// Which symbolic links are followed in sources.
    pub(crate) follow: Follow,
    /// Whether new names get default permissions, because the user asked not to preserve the mode.
    pub(crate) fresh_mode: bool,
    /// Owner and permissions set on every copy, regardless of the source's.
    pub(crate) given: Given,
    /// Keep existing targets.
    pub(crate) no_clobber: bool,
    /// Keep existing targets that are not older.
    pub(crate) update: bool,
    /// Replace targets that cannot be opened.
    pub(crate) force: bool,
    /// Print every name.
    pub(crate) verbose: bool,
    /// The treatment of holes.
    pub(crate) sparse: Sparse,
    /// Print statistics at the end.
    pub(crate) stats: bool,
    /// The target is the name itself, not a directory to copy into.
    pub(crate) exact_target: bool,
    /// Allow overwriting a host file that holds an ext volume or is in use.
    pub(crate) overwrite_image: bool,
    /// Byte at which a volume in such a file may begin.
    pub(crate) offset_bytes: u64,
}

/// Owner and permissions set on every copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// The new owner.
    pub(crate) owner: Option<Owner>,
    /// The change of the permissions.
    pub(crate) mode: Option<ModeChange>,
}

/// Which symbolic links are followed in sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// None: links are copied as links.
    Never,
    /// Those named on the command line.
    Arguments,
    /// All.
    Always,
}

/// The treatment of holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sparse {
    /// Preserve the source's holes.
    #[default]
    Auto,
    /// Make blocks of zeroes holes too.
    Always,
    /// Write holes as zeroes.
    Never,
}
