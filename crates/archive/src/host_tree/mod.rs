//! Trees of this machine, walked by descriptors, for reading and for writing. Sources that are directories
//! are read by it, and `throughline cp` reads and writes the host by it. It is no part of the API.
//!
//! Other users may rename and replace what is in such a tree at any moment, while root reads or writes it.
//!
//! ```text
//! Folders   directories by number, each opened in the one above    Held   an inode, whatever its name is now
//!    └───────────────► descriptor, name ──────────────────────────────────►┘ │ open_file
//! ```
//!
//! Invariants:
//! - Below a root, which is opened once, no path of several parts is used and no link is followed. A
//!   directory that is opened again has the device and inode number that it had before, or is refused.
//! - Status, extended attributes, target and data of a name are read from one inode, and changes are made to
//!   the inode that was looked at. Where that needs a path, it is one below `/proc/self/fd`.
//! - No device and no fifo is opened, unless it has just replaced a regular file; then it is not waited for,
//!   and not read.
//! - A bounded number of directories is open: [`Folders`] has some, and its users those that they work in.
//! - What fakeroot(1) replaces goes through symbols of the C library ([`calls`]).

mod attributes;
pub mod calls;
mod folders;
mod held;
mod names;

pub use attributes::Attributes;
pub use calls::{Identity, Status};
pub use folders::{FolderId, Folders};
pub use held::{Held, open_file};
pub use names::Names;

use rustix::io::Errno;

/// Why an inode that was seen before could not be opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// The name is gone, or leads to something else.
    Replaced,
    /// The system's error.
    Failed(Errno),
}

impl From<Errno> for Unreached {
    /// Of a name that was there, and was not a link.
    fn from(errno: Errno) -> Unreached {
        match errno {
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR => Unreached::Replaced,
            other => Unreached::Failed(other),
        }
    }
}
