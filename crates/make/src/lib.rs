//! Makes ext2, ext3 and ext4 volumes.
//!
//! ```text
//! options ─► resolve (mke2fs.conf, the target) ─► request ─► plan ─► write
//! ```
//! [`MkfsOptions`] holds the options, named as in mke2fs. `resolve` fills in every default. `plan` computes
//! every number and place, without I/O. `write` clears the target and writes what is not zero, in ascending
//! order.
//!
//! Invariants:
//! - A volume has the layout that mke2fs 1.47 gives it, except for the differences listed in
//!   `ARCHITECTURE.md`.
//! - Same options, UUID, hash seed and time: same bytes.
//! - Errors in the options are found before anything is written.
#![forbid(unsafe_code)]

mod buffer;
mod config;
mod disk;
mod error;
mod extended;
mod features;
mod hash_tree;
mod journal_device;
mod journal_words;
mod make;
mod options;
pub mod pack;
mod plan;
mod request;
pub mod resize;
mod resolve;
mod words;
mod write;
mod writer;

pub use config::Config;
pub use error::{Error, Result};
pub use features::Features;
pub use hash_tree::{FoundHashTree, behind as hash_tree_behind};
pub use make::Made;
#[doc(hidden)]
pub use options::{MkfsOptions, VolumeSize};
pub use resolve::parse_on_error;
pub use throughline_extfmt::superblock::OnError;

/// The examples of the README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
