//! Tar: ustar, GNU and PAX archives, to read; PAX archives, to write.
//!
//! The parser is our own: the crate `tar` has no PAX sparse files and no limits for hostile input.

mod acl;
mod entry;
mod header;
mod pax;
mod reader;
mod sparse;
mod writer;

pub(crate) use entry::{Entry, EntryKind, name_start};
pub(crate) use reader::Reader;
pub use writer::{Written, write_tar, write_tar_past};

/// Archives consist of blocks of this size.
pub(crate) const BLOCK: usize = 512;
