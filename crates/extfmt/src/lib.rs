//! The on-disk format of ext2, ext3, ext4 and jbd2: bytes to checked types and back, without I/O.
//!
//! One file per on-disk concept. Structures carry the format's own field names and are
//! little-endian (`jbd2`: big-endian) byte arrays, so they may be laid over a buffer of any
//! alignment. Bytes with unknown meaning are preserved when a buffer is written back.
//!
//! Invariants:
//! - Nothing here panics, loops without bound or allocates without bound, whatever the bytes.
//! - Values that a parser returns are safe to use as an index, a length or a range within the bounds
//!   that its documentation names. Everything else is refused as [`Corrupt`], which says what
//!   was found and where.
//! - Views (`extent::Node`, `htree::IndexNode`, ...) check each time that their accesses stay in bounds.
//!   Their `check` functions walk the whole block and are meant to run once when a block is read.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod acl;
pub mod bitmap;
pub mod casefold;
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
pub mod quota;
pub mod superblock;
pub mod time;
pub mod units;
pub mod verity;
pub mod xattr;

pub use error::{Corrupt, Result};
pub use geometry::Geometry;
pub use group_desc::GroupDesc;
pub use inode::InodeImage;
pub use superblock::Superblock;
pub use units::{FileBlock, FsBlock, GroupNumber, InodeNumber};

/// The examples of the README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
