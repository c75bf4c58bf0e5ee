//! Tar: ustar, GNU and PAX archives, to read; PAX archives, to write.
//!
//! The reader's own parser and not the crate `tar`: that has neither sparse files of PAX nor bounds for
//! hostile input.

mod acl;
mod entry;
mod header;
mod pax;
mod reader;
mod sparse;
mod writer;

pub(crate) use entry::Entry;
pub(crate) use reader::Reader;
pub use writer::{Written, write_tar};

/// Archives consist of blocks of this size.
pub(crate) const BLOCK: usize = 512;
