//! ext2, ext3 and ext4 images mounted through FUSE.
//!
//! ```text
//!  program ─ kernel ─ /dev/fuse
//!                        │ one request
//!                        ▼
//!  workers ─► channel: into page-aligned memory of the thread          channel.rs, workers.rs, pace.rs
//!                        ▼
//!  server: one file a family of requests                               server/
//!      nodes.rs  what the kernel knows        files.rs  what is open        policy.rs  which cache serves it
//!      coherence.rs  what the kernel's cache holds, and what goes past it
//!                        ▼
//!  throughline::{Node, File}                                           the face
//! ```
//!
//! Invariants:
//! - Nobody else changes the image while it is mounted, so the kernel may keep what it was told until it changes it itself.
//! - Permissions are the kernel's to check (`default_permissions`); what it does not check is checked here.
//! - An errno is made in `errno.rs` and nowhere else.
//! - Mounting (but of block devices: block_device.rs), negotiating and unmounting are `fuser`'s; the loop of requests is ours.
#![forbid(unsafe_code)]

mod block_device;
mod channel;
mod coherence;
mod errno;
mod files;
pub mod mounts;
mod nodes;
pub mod options;
mod pace;
mod policy;
mod server;
mod session;
mod streak;
mod unmount;
mod wire;
mod workers;

pub use block_device::Claim;
pub use options::MountOptions;
pub use server::{END_WRITING_ATTRIBUTE, STATUS_ATTRIBUTE};
pub use session::{MountError, Session};
pub use unmount::{Ending, Unmount, UnmountError, unmount};
