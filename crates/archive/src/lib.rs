//! Trees of files for images: from host directories, tar archives, container images and code; and a tar
//! writer.
//!
//! ```text
//! directory, tar, image ─► scan ─► Tree (names, metadata, where contents are) ─► a plan of the image
//!                                     Sources ─► data, in one pass ────────────► the image
//! ```
//! Sources are merged in order, later over earlier. Nothing here knows of file systems or needs root.
//!
//! Invariants:
//! - The tree depends on the sources' contents only: not on the order in which the host lists a directory,
//!   the number of threads, the user or the clock.
//! - Input is untrusted: all of it is checked and bounded by [`Limits`], and no path leads outside the tree.
#![forbid(unsafe_code)]

mod archive_file;
mod content;
mod error;
mod exclude;
mod host;
#[doc(hidden)]
pub mod host_tree;
mod image;
mod limits;
mod memory;
mod merge;
mod meta;
mod pass;
mod source;
mod stream;
mod tar;
mod threads;
mod tree;

pub use content::{Content, Extent, FileContent, SourceId};
pub use error::{Error, Result};
pub use image::{Blob, DigestSum, Fetched, Platform, RemoteImage};
pub use limits::Limits;
pub use memory::{InMemory, Memory};
pub use merge::Merge;
pub use meta::{Device, Kind, Meta, NAME_MAX, TARGET_MAX, Time, Xattr};
pub use source::{Access, Item, OpenContent, Piece, Source, Sources, Visited};
pub use stream::{is_compressed, unpack};
pub use tar::{Written, write_tar, write_tar_past};
pub use tree::{Child, NodeId, NodeRef, Step, Tree, Walk};
