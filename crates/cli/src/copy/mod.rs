//! Copying between images, the host and streams.
//!
//! Both sides look alike: a [`side::Folder`] holds names, a [`side::Content`] holds bytes; [`host`] and
//! [`image`] bring them. [`arguments`] turns the command line into single copies, [`tree`] and [`descend`]
//! walk one source and make what they find at the target, [`pump`] moves the bytes, [`workers`] move those of
//! small files, many at a time, [`extended`] has the extended attributes and ACLs.
//!
//! Invariants:
//! - Names are made by the one thread that walks, in the order of the walk; only bytes and final attributes
//!   come later. So a hard link always finds its first name, and a directory's times are set behind its last
//!   entry.
//! - Below the target that was named on the command line, no symbolic link is ever followed when writing:
//!   what a hostile image holds cannot make a copy leave its target.
//! - Memory is bounded: a few large buffers, one small one for each worker, a bounded queue between them;
//!   beyond that only the inode numbers of directories and of files with more names to come.

mod arguments;
mod descend;
mod extended;
mod host;
mod host_meta;
mod image;
mod latency;
mod preloadable;
mod preserve;
mod pump;
mod side;
mod tree;
mod workers;

pub(crate) use arguments::{Totals, copy};
pub(crate) use preserve::{Preserve, Xattrs};

use crate::mode::ModeChange;
use crate::owner::Owner;

/// What is copied, and how.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Directories with all that is in them.
    pub(crate) recursive: bool,
    /// What is the source's.
    pub(crate) preserve: Preserve,
    /// Which symbolic links are followed in sources.
    pub(crate) follow: Follow,
    /// What of the source is explicitly not kept: new names have the permissions that any new ones have.
    pub(crate) fresh_mode: bool,
    /// What every copy is given, whatever its source has.
    pub(crate) given: Given,
    /// What exists at the target stays.
    pub(crate) no_clobber: bool,
    /// What exists at the target stays where it is not older.
    pub(crate) update: bool,
    /// What cannot be opened at the target is replaced.
    pub(crate) force: bool,
    /// Every name is said.
    pub(crate) verbose: bool,
    /// The treatment of holes.
    pub(crate) sparse: Sparse,
    /// Figures are wanted at the end.
    pub(crate) stats: bool,
    /// The target is a name, never a directory to copy into.
    pub(crate) exact_target: bool,
    /// A file of the host that holds an ext volume, or is in use, may be overwritten.
    pub(crate) overwrite_image: bool,
    /// Where a volume in such a file may begin, in bytes.
    pub(crate) offset_bytes: u64,
}

/// Owner and permissions that every copy is given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// Whose it becomes.
    pub(crate) owner: Option<Owner>,
    /// How its permissions are changed.
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
