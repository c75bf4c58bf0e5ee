//! ext2, ext3, ext4 and jbd2 on disk: bytes to checked types and back, without I/O.
//!
//! One on-disk concept a file. Structures carry the format's own field names and are
//! little-endian (`jbd2`: big-endian) byte arrays, so they may be laid over a buffer of any
//! alignment; what is not understood in a buffer is left as it was when it is written back.
//!
//! Invariants:
//! - Nothing here panics, loops without bound or allocates without bound, whatever the bytes.
//! - What a parser returns is safe to use as an index, a length or a range within the bounds
//!   that its documentation names; everything else is refused as [`Corrupt`], which says what
//!   was found and where.
//! - Views (`extent::Node`, `htree::IndexNode`, ...) check what memory safety of the view needs
//!   each time; the `check` functions beside them walk the whole block and are meant to run
//!   once per block read.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod acl;
pub mod bitmap;
pub mod checksum;
pub mod dir;
mod error;
pub mod extent;
pub mod fast_commit;
pub mod features;
pub mod geometry;
pub mod group_desc;
pub mod hash;
pub mod htree;
pub mod indirect;
pub mod inline_data;
pub mod inode;
pub mod jbd2;
pub mod layout;
pub mod mmp;
pub mod nokey;
pub mod orphan;
pub mod superblock;
pub mod time;
pub mod units;
pub mod xattr;

pub use error::{Corrupt, Result};
pub use geometry::Geometry;
pub use group_desc::GroupDesc;
pub use inode::InodeImage;
pub use superblock::Superblock;
pub use units::{FileBlock, FsBlock, GroupNumber, InodeNumber};
