//! ext2, ext3 and ext4 images mounted through FUSE.
//!
//! ```text
//!  program ─ kernel ─ /dev/fuse, or a ring of each CPU
//!                        │ one request
//!                        ▼
//!  workers ─► channel: into page-aligned memory of the thread          channel.rs, workers.rs, pace.rs
//!  or rings: the kernel writes into memory of the thread               rings/
//!                        ▼
//!  server: one file per family of requests                             server/
//!      nodes.rs  referenced inodes            files.rs  open handles      policy.rs  choice of cache
//!      coherence.rs  the kernel's page cache, and I/O that bypasses it
//!                        ▼
//!  throughline::{Node, File}                                           the public API
//! ```
//!
//! Invariants:
//! - Nothing else changes the image while it is mounted, so the kernel may cache names and attributes without
//!   a time limit.
//! - The kernel checks permissions (`default_permissions`); what it does not check is checked here.
//! - Only `errno.rs` maps errors to errno.
//! - `fuser` mounts (except block devices: `block_device.rs`), negotiates and unmounts; the request loop is
//!   ours.
#![forbid(unsafe_code)]

mod bell;
mod beside;
mod block_device;
mod channel;
mod coherence;
mod connection;
mod errno;
mod files;
pub mod mounts;
mod nodes;
pub mod options;
mod outside;
mod pace;
mod placement;
mod policy;
mod read_ahead;
mod rings;
mod server;
mod service;
mod session;
mod streak;
mod transport;
mod turns;
mod unmount;
mod unopened;
mod watch;
mod wire;
mod workers;

pub use block_device::Claim;
pub use options::MountOptions;
pub use outside::{Outside, asked_shutdown_mode};
pub use server::{END_WRITING_ATTRIBUTE, STATUS_ATTRIBUTE, serve_null};
pub use session::{MountError, Session, StillOpen};
pub use unmount::{Ending, Unmount, UnmountError, unmount};
