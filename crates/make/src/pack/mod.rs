//! Packs a tree of files into a new volume.
//!
//! ```text
//! tree ─► walk      order of inodes, digest of names and attributes
//!      ─► size      how large the volume is: by planning it
//!      ─► measure   what each node needs on such a volume
//!      ─► place     (part of the plan) where its blocks are
//!      ─► data      one pass: source ─► place, and a digest; from it the UUID
//!      ─► write     metadata in ascending order, flush; then the image gets its name
//! ```
//!
//! Invariants:
//! - Nothing is written before the whole plan fits.
//! - The image has its name only when it is complete and durable.
//! - Same tree, same options: same bytes (`docs/pack.md`).

mod attributes;
mod check;
mod data;
mod directory;
mod extents;
mod host;
pub(crate) mod inode;
pub(crate) mod measure;
mod memory;
mod options;
pub(crate) mod place;
mod pointers;
mod size;
mod stream;
pub(crate) mod tree;
mod walk;

pub use check::Difference;
pub use host::Exclude;
pub use memory::{Content, MemoryTree};
pub use options::{PackOptions, Packed};
pub use size::PackSize;
pub use tree::{Attributes, Contents, Kind, NodeId, ROOT, ReadAt, Sink, Stream, Tree};
