//! Packs a tree of files into a new volume. The tree and its sources are those of the crate `archive`.
//!
//! ```text
//! tree ─► walk      order of inodes, digest of names and attributes
//!      ─► size      how large the volume is: by planning it
//!      ─► measure   what each node needs on such a volume
//!      ─► place     (part of the plan) where its blocks are
//!      ─► data      one pass: source ─► place, and a digest; from it the UUID (stream: compressed sources)
//!      ─► write     metadata in ascending order, flush; then the image gets its name
//! ```
//!
//! Invariants:
//! - Nothing is written before the whole plan fits.
//! - The image has its name only when it is complete and durable; before, it has none where the host's file
//!   system can do that, so nothing is left even if the process is killed.
//! - Same tree, same options: same bytes (`docs/pack.md`).

mod attributes;
mod check;
mod data;
pub(crate) mod directory;
pub(crate) mod extents;
mod frame;
pub(crate) mod inode;
pub(crate) mod measure;
mod onto;
mod options;
pub(crate) mod place;
mod planned;
pub(crate) mod pointers;
mod size;
mod stream;
pub(crate) mod tree;
pub(crate) mod verity;
mod walk;
mod whole;

pub use check::Difference;
pub(crate) use frame::{Around, Frame, write_table};
pub use frame::{HashTree, PartitionTable};
pub use options::PackOptions;
pub use planned::{Packed, PackedPartition};
pub use size::PackSize;
pub use verity::Verity;
