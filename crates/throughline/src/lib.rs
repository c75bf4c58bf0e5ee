//! The path file data takes between a program and a disk, as a user-space library.
//!
//! [`Volume`] is an open ext2, ext3 or ext4 image: names, files, attributes, in the spirit of `std::fs`. [`RawFile`] is a
//! plain file or a block device with the same direct I/O. Both are opened by [`OpenOptions`].
//!
//! ```no_run
//! use throughline::{Attributes, OpenOptions};
//!
//! # fn main() -> throughline::Result<()> {
//! let volume = OpenOptions::new().open("disk.img")?;
//! let file = volume.create_file("/etc/motd", &Attributes::new().mode(0o644))?;
//! file.write_all_at(0, b"hello\n")?;
//! drop(file);
//! volume.close()
//! # }
//! ```
//!
//! Invariants:
//! - Paths are bytes, start at the root of the volume (or at a [`Dir`]) and never lead out of it: `..` of the root is the
//!   root, an absolute symbolic link starts at the root of the volume.
//! - [`File`] and [`Dir`] keep their inode alive, whatever happens to its names.
//! - After [`Volume::sync`] returned `Ok`, everything done before survives a crash.
//! - Errors say whose fault they are; see [`Error`].
#![forbid(unsafe_code)]

mod cache;
mod copy;
mod cursor;
mod dir;
mod error;
mod file;
mod handle;
mod hints;
mod info;
mod metadata;
mod mode;
mod open;
mod raw;
mod source;
mod time;
mod volume;

pub use cache::CacheState;
pub use cursor::Cursor;
pub use dir::{Dir, DirEntry, ReadDir};
pub use error::{Error, Result};
pub use file::File;
pub use handle::Handle;
pub use hints::SyncRange;
pub use info::{DeviceState, IoCounts, JournalState, VolumeInfo};
pub use metadata::{Attributes, DeviceNumber, FileType, Metadata};
pub use mode::FileOptions;
pub use open::OpenOptions;
pub use raw::RawFile;
pub use throughline_block::{BioInfo, Event, Listener, Subscription};
pub use throughline_device::{AlignedBuf, EngineChoice, Limits, Op};
pub use throughline_ext::{Corrupt, Fallocate, Reason, RenameMode, StatFs};
pub use throughline_fileio::throttle::{self, Pauses, ThrottleState};
pub use throughline_fileio::writeback::WritebackCounts;
pub use throughline_fileio::{Advice, DirtyLimits, PageCache};
pub use volume::Volume;
