//! Copying between images, the host and streams.
//!
//! Both sides have the same interface: a [`side::Folder`] holds names, a [`side::Content`] holds bytes;
//! [`host`] and [`image`] implement them. [`arguments`] turns the command line into single copies. [`tree`]
//! and [`descend`] walk one source and create what they find at the target. [`pump`] copies the bytes,
//! [`workers`] those of small files, many at a time. [`extended`] copies the extended attributes and ACLs.
//!
//! Invariants:
//! - The walking thread alone creates names, in the order of the walk; only bytes and final attributes come
//!   later. So the first name of a hard link always exists before the others, and a directory's times are set
//!   after its last entry.
//! - Below the target that was named on the command line, writing never follows a symbolic link: the contents
//!   of a hostile image cannot make a copy leave its target.
//! - Memory is bounded: a few large buffers, one small buffer per worker, a bounded queue between them.
//!   Beyond that, only the inode numbers of directories and of files with more names to come.

use throughline_forms::mode::ModeChange;
use throughline_forms::owner::Owner;

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

/// What to copy and how.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Copy directories with their contents.
    pub(crate) recursive: bool,
    /// What to keep of the source.
    pub(crate) preserve: Preserve,
    /// Which symbolic links are followed in sources.
    pub(crate) follow: Follow,
    /// Explicitly do not keep the source's mode: new names get default permissions.
    pub(crate) fresh_mode: bool,
    /// Set on every copy, whatever the source has.
    pub(crate) given: Given,
    /// Keep existing targets.
    pub(crate) no_clobber: bool,
    /// Keep existing targets that are not older.
    pub(crate) update: bool,
    /// Replace targets that cannot be opened.
    pub(crate) force: bool,
    /// Print every name.
    pub(crate) verbose: bool,
    /// How to treat holes.
    pub(crate) sparse: Sparse,
    /// Print statistics at the end.
    pub(crate) stats: bool,
    /// The target is a name, never a directory to copy into.
    pub(crate) exact_target: bool,
    /// Allow overwriting a host file that holds an ext volume or is in use.
    pub(crate) overwrite_image: bool,
    /// Where a volume in such a file may begin, in bytes.
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
